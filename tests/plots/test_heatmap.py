"""The heat map of R: the numbers in its CSV by hand, undefined cells, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tosca_avalanche.plots import plot_heatmap


def _tosca(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["method"] == "TOSCA"]


def test_png_and_csv_by_hand(
    two_methods: pd.DataFrame, tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    path = plot_heatmap(_tosca(two_methods), tmp_path / "r.png")
    width, height = png_size(path)
    assert 600 <= width <= 1600 and 400 <= height <= 1400
    table = pd.read_csv(tmp_path / "r.csv")
    assert list(table) == [
        "method",
        "protocol",
        "after_task",
        "eval_task",
        "mean_percent",
        "n_seeds",
    ]
    cells = list(zip(table["after_task"], table["eval_task"], strict=True))
    assert cells == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    # R[t, i] = A_t - 10 i points, A_t averages 85, 70, 55
    np.testing.assert_allclose(table["mean_percent"], [85, 70, 60, 55, 45, 35])
    assert table["n_seeds"].tolist() == [2] * 6


def test_cells_after_the_current_task_are_ignored(
    two_methods: pd.DataFrame, row: Callable[..., dict[str, object]], tmp_path: Path
) -> None:
    future = pd.DataFrame([row("acc", 0, 0.5, eval_task=2)])
    path = plot_heatmap(pd.concat([_tosca(two_methods), future]), tmp_path / "r.png")
    assert len(pd.read_csv(path.with_suffix(".csv"))) == 6


def test_an_undefined_cell_is_empty_and_not_zero(two_methods: pd.DataFrame, tmp_path: Path) -> None:
    frame = _tosca(two_methods).copy()
    frame.loc[(frame["metric"] == "acc") & (frame["eval_task"] == 1), "value"] = None
    path = plot_heatmap(frame, tmp_path / "r.png")
    table = pd.read_csv(path.with_suffix(".csv"))
    np.testing.assert_allclose(table["mean_percent"], [85, 70, np.nan, 55, np.nan, 35])
    assert table["n_seeds"].tolist() == [2, 2, 0, 2, 0, 2]


@pytest.mark.parametrize("n_tasks", [1, 12, 13, 40])
def test_any_number_of_tasks(
    n_tasks: int,
    row: Callable[..., dict[str, object]],
    tmp_path: Path,
    png_size: Callable[[Path], tuple[int, int]],
) -> None:
    frame = pd.DataFrame(
        row("acc", t, (t + i) / (2 * n_tasks), eval_task=i)
        for t in range(n_tasks)
        for i in range(t + 1)
    )
    path = plot_heatmap(frame, tmp_path / "r.png")
    assert max(png_size(path)) <= 1500
    table = pd.read_csv(path.with_suffix(".csv"))
    assert len(table) == n_tasks * (n_tasks + 1) // 2
    expected = 50 * (table["after_task"] + table["eval_task"]) / n_tasks
    np.testing.assert_allclose(table["mean_percent"], expected)


def test_mixed_frames_are_refused(two_methods: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "r.png"
    with pytest.raises(ValueError, match="mixes the methods SimpleCIL, TOSCA"):
        plot_heatmap(two_methods, path)
    tosca = _tosca(two_methods)
    batch = tosca.assign(protocol="entropy-batch")
    with pytest.raises(ValueError, match="mixes the protocols entropy-batch, per-sample"):
        plot_heatmap(pd.concat([tosca, batch]), path)
    cut = tosca[~((tosca["seed"] == 2) & (tosca["eval_task"] == 2))]
    with pytest.raises(ValueError, match="seed 2 has 5 of the 6 steps"):
        plot_heatmap(cut, path)
    assert list(tmp_path.iterdir()) == []


def test_missing_columns_and_metric_are_named(two_methods: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "r.png"
    with pytest.raises(ValueError, match=r"lacks the column\(s\) eval_task"):
        plot_heatmap(two_methods.drop(columns="eval_task"), path)
    with pytest.raises(ValueError, match="no rows of the metric 'acc'"):
        plot_heatmap(two_methods[two_methods["metric"] == "A_t"], path)
    with pytest.raises(ValueError, match="column 'eval_task' holds"):
        plot_heatmap(_tosca(two_methods).assign(eval_task=None), path)
    with pytest.raises(ValueError, match="every value of 'acc'"):
        plot_heatmap(_tosca(two_methods).assign(value=None), path)
