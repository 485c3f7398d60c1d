"""The forgetting figure: the numbers in its CSV by hand, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tosca_avalanche.plots import plot_forgetting


def test_png_and_csv_by_hand(
    two_methods: pd.DataFrame, tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    path = plot_forgetting(two_methods, tmp_path / "f.png")
    width, height = png_size(path)
    assert width == 1080 and 600 < height < 1000
    table = pd.read_csv(tmp_path / "f.csv")
    assert table["method"].tolist() == ["TOSCA", "TOSCA", "SimpleCIL", "SimpleCIL"]
    assert table["tasks_learned"].tolist() == [2, 3, 2, 3]
    # TOSCA: (10 + 20) / 2 and (30 + 30) / 2 points
    np.testing.assert_allclose(table["mean_percent"], [15, 30, 0, 10])
    # ddof 1: sqrt(5^2 + 5^2)
    np.testing.assert_allclose(table["std_ddof1_percent"][:2], [50**0.5, 0], atol=1e-9)
    assert table["std_ddof1_percent"][2:].isna().all()
    assert table["n_seeds"].tolist() == [2, 2, 1, 1]


def test_a_row_of_another_metric_without_a_step_does_not_matter(
    two_methods: pd.DataFrame, row: Callable[..., dict[str, object]], tmp_path: Path
) -> None:
    extra = pd.DataFrame([row("A_bar", 0, 0.5) | {"after_task": None}])
    path = plot_forgetting(pd.concat([two_methods, extra]), tmp_path / "f.png")
    assert len(pd.read_csv(path.with_suffix(".csv"))) == 4


def test_one_task_has_no_forgetting(two_methods: pd.DataFrame, tmp_path: Path) -> None:
    one = two_methods[two_methods["after_task"] == 0]
    for frame in (one, one[one["metric"] != "forgetting_max"]):
        with pytest.raises(ValueError, match="forgetting needs two tasks"):
            plot_forgetting(frame, tmp_path / "f.png")
    with pytest.raises(ValueError, match="forgetting needs two tasks"):
        plot_forgetting(two_methods.assign(value=None), tmp_path / "f.png")
    assert list(tmp_path.iterdir()) == []


def test_missing_columns_and_metric_are_named(two_methods: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lacks the column\(s\) after_task"):
        plot_forgetting(two_methods.drop(columns="after_task"), tmp_path / "f.png")
    with pytest.raises(ValueError, match=r"no rows of the metric 'forgetting_max'"):
        plot_forgetting(two_methods[two_methods["metric"] == "A_t"], tmp_path / "f.png")
