"""The accuracy figure: the numbers in its CSV by hand, the drawn lines, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from tosca_avalanche.plots import plot_accuracy
from tosca_avalanche.plots.lines import draw_lines, line_table
from tosca_avalanche.plots.series import METHODS, line_places, metric_rows
from tosca_avalanche.strategies import strategy_names


def test_png_and_csv_by_hand(
    two_methods: pd.DataFrame, tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    path = plot_accuracy(two_methods, tmp_path / "new folder" / "acc.v1.png")
    assert path == tmp_path / "new folder" / "acc.v1.png"
    width, height = png_size(path)
    assert width == 1080 and 600 < height < 1000
    assert imread(path)[..., :3].std() > 0.05
    table = pd.read_csv(path.with_name("acc.v1.csv"))
    assert table["method"].tolist() == ["TOSCA"] * 3 + ["SimpleCIL"] * 3
    assert table["protocol"].unique().tolist() == ["per-sample"]
    assert table["tasks_learned"].tolist() == [1, 2, 3, 1, 2, 3]
    # TOSCA: (90 + 80) / 2, (70 + 70) / 2, (50 + 60) / 2
    np.testing.assert_allclose(table["mean_percent"], [85, 70, 55, 60, 50, 40])
    # ddof 1: sqrt(((90 - 85)^2 + (80 - 85)^2) / 1) = sqrt(50); one seed has no deviation
    std = table["std_ddof1_percent"]
    np.testing.assert_allclose(std[:3], [50**0.5, 0, 50**0.5], atol=1e-9)
    assert std[3:].isna().all()
    assert table["n_seeds"].tolist() == [2, 2, 2, 1, 1, 1]
    assert sorted(p.name for p in path.parent.iterdir()) == ["acc.v1.csv", "acc.v1.png"]


def test_the_drawn_lines_are_the_table(two_methods: pd.DataFrame) -> None:
    rows = metric_rows(two_methods, "A_t")
    table = line_table(rows)
    figure, axes = draw_lines(two_methods, rows, table, "y")
    tosca, simple = axes.get_lines()
    np.testing.assert_array_equal(tosca.get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(tosca.get_ydata(), table["mean_percent"][:3])
    np.testing.assert_array_equal(simple.get_ydata(), table["mean_percent"][3:])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["TOSCA, 2 seeds", "SimpleCIL, 1 seed"]
    assert axes.get_title() == "toy 3x2, protocol per-sample"
    assert "ddof 1" in figure.legends[0].get_title().get_text()
    assert axes.get_xticks().tolist() == [1, 2, 3]
    styles = {
        (line.get_color(), line.get_marker(), line.get_linestyle()) for line in (tosca, simple)
    }
    assert all(len({style[k] for style in styles}) == 2 for k in range(3))


@pytest.mark.parametrize("n_methods", [1, 2, 8, 11])
@pytest.mark.parametrize("n_tasks", [1, 5, 20, 100])
def test_nothing_is_clipped_or_overlaps(
    n_methods: int, n_tasks: int, many_series: Callable[[int, int], pd.DataFrame]
) -> None:
    frame = many_series(n_methods, n_tasks)
    frame["value"] = frame["value"].clip(0, 1)
    rows = metric_rows(frame, "A_t")
    figure, axes = draw_lines(frame, rows, line_table(rows), "accuracy on all classes seen (%)")
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    page = figure.bbox
    plot = axes.get_tightbbox(renderer)
    legend = figure.legends[0].get_window_extent(renderer)
    for box in (plot, legend):
        assert box.x0 >= page.x0 and box.y0 >= page.y0 and box.x1 <= page.x1 and box.y1 <= page.y1
    assert legend.y1 <= plot.y0
    assert axes.get_window_extent(renderer).height > 350 * figure.dpi / 150
    ticks = [text.get_window_extent(renderer) for text in axes.get_xticklabels()]
    assert all(a.x1 < b.x0 for a, b in pairwise(ticks))
    assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_many_tasks_read_as_text_stay_in_order(
    row: Callable[..., dict[str, object]], tmp_path: Path
) -> None:
    rows = [row("A_t", t, 0.5 + t / 100) for t in range(12)]
    frame = pd.DataFrame(rows).astype({"after_task": str}).sample(frac=1, random_state=0)
    path = plot_accuracy(frame, tmp_path / "a.png")
    table = pd.read_csv(path.with_suffix(".csv"))
    assert table["tasks_learned"].tolist() == list(range(1, 13))
    np.testing.assert_allclose(table["mean_percent"], np.arange(50, 62))


def test_two_protocols_of_a_method_are_two_lines(two_methods: pd.DataFrame, tmp_path: Path) -> None:
    other = two_methods[two_methods["method"] == "TOSCA"].assign(protocol="entropy-batch")
    path = plot_accuracy(pd.concat([two_methods, other]), tmp_path / "a.png")
    table = pd.read_csv(path.with_suffix(".csv"))
    assert table.groupby(["method", "protocol"]).ngroups == 3
    assert len(table) == 9


def test_several_protocols_stand_in_the_names_and_a_star_behind_the_method(
    two_methods: pd.DataFrame,
) -> None:
    other = two_methods[two_methods["method"] == "TOSCA"].assign(protocol="entropy-batch")
    frame = pd.concat([two_methods, other])
    rows = metric_rows(frame, "A_t")
    figure, axes = draw_lines(frame, rows, line_table(rows), "y", {"SimpleCIL"})
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [
        "TOSCA (per-sample), 2 seeds",
        "SimpleCIL* (per-sample), 1 seed",
        "TOSCA (entropy-batch), 2 seeds",
    ]
    assert axes.get_title() == "toy 3x2"
    assert "* settings unlike" in figure.legends[0].get_title().get_text()


def test_a_method_looks_the_same_in_every_figure() -> None:
    few = line_places([("slda", "p"), ("mine", "p"), ("ease", "p")])
    assert few == {("slda", "p"): 2, ("mine", "p"): 0, ("ease", "p"): 7}
    everything = line_places([(method, "p") for method in METHODS])
    assert everything["slda", "p"] == 2 and everything["ease", "p"] == 7
    assert len(set(everything.values())) == len(METHODS)
    assert set(METHODS) == set(strategy_names())
    protocols = line_places([("tosca", "a"), ("slda", "a"), ("tosca", "b")])
    assert [*protocols.values()] == [0, 1, 2]


def test_an_undefined_step_is_a_gap(row: Callable[..., dict[str, object]], tmp_path: Path) -> None:
    values = {1: [0.5, None, 0.3], 2: [0.7, None, None]}
    frame = pd.DataFrame(
        row("A_t", t, value, seed=seed) for seed in values for t, value in enumerate(values[seed])
    )
    path = plot_accuracy(frame, tmp_path / "a.png")
    table = pd.read_csv(path.with_suffix(".csv"))
    np.testing.assert_allclose(table["mean_percent"], [60, np.nan, 30])
    assert table["n_seeds"].tolist() == [2, 0, 1]
    assert table["std_ddof1_percent"].isna().tolist() == [False, True, True]


def test_missing_columns_and_metric_are_named(two_methods: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    with pytest.raises(ValueError, match=r"lacks the column\(s\) seed, value"):
        plot_accuracy(two_methods.drop(columns=["seed", "value"]), path)
    with pytest.raises(ValueError, match=r"no rows of the metric 'A_t'; it has: acc, forg"):
        plot_accuracy(two_methods[two_methods["metric"] != "A_t"], path)
    with pytest.raises(ValueError, match=r"no rows of the metric 'A_t'; it has: no rows"):
        plot_accuracy(two_methods.iloc[:0], path)
    assert list(tmp_path.iterdir()) == []


def test_what_can_not_be_averaged_is_refused(two_methods: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    a_t = two_methods[two_methods["metric"] == "A_t"]
    second = a_t["seed"] == 2
    with pytest.raises(ValueError, match=r"mixes the streams other, toy 3x2"):
        plot_accuracy(a_t.assign(stream=a_t["stream"].where(~second, "other")), path)
    with pytest.raises(
        ValueError, match=r"TOSCA \(per-sample\) has several rows for seed 2, after"
    ):
        plot_accuracy(pd.concat([a_t, a_t[second].assign(run_id="again")]), path)
    with pytest.raises(ValueError, match=r"TOSCA \(per-sample\): seed 2 has 2 of the 3 steps"):
        plot_accuracy(a_t[~(second & (a_t["after_task"] == 2))], path)
    with pytest.raises(ValueError, match="'protocol' is empty in a row of 'A_t'"):
        plot_accuracy(a_t.assign(protocol=None), path)
    with pytest.raises(ValueError, match=r"column 'after_task' holds 0\.5"):
        plot_accuracy(a_t.assign(after_task=a_t["after_task"] + 0.5), path)
    with pytest.raises(ValueError, match=r"a value of 'A_t' is 90.0: pass fractions from 0 to 1"):
        plot_accuracy(a_t.assign(value=a_t["value"] * 100), path)
    with pytest.raises(ValueError, match="every value of 'A_t' is undefined"):
        plot_accuracy(a_t.assign(value=None), path)
    assert list(tmp_path.iterdir()) == []


def test_the_frame_is_not_changed(two_methods: pd.DataFrame, tmp_path: Path) -> None:
    before = two_methods.copy(deep=True)
    plot_accuracy(two_methods, tmp_path / "a.png")
    pd.testing.assert_frame_equal(two_methods, before)
