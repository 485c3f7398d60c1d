"""Accuracy over cost: the numbers drawn, in the file beside the figure."""

import itertools

import pandas as pd
import pytest

from tosca_avalanche.plots import plot_cost, save
from tosca_avalanche.plots.style import new_figure, set_wide_scale


def summary(*rows):
    columns = ["method", "protocol", "metric", "mean", "std", "n"]
    return pd.DataFrame(rows, columns=columns).assign(stream="toy")


def test_one_point_per_method_and_cost(tmp_path):
    frame = summary(
        ("a", "per-image", "A_last", 0.5, 0.01, 2),
        ("a", "per-image", "params_total", 0, 0.0, 2),
        ("a", "per-image", "train_s", 3.0, 0.5, 2),
        ("b", "oracle-task", "A_last", 0.9, None, 1),
        ("b", "oracle-task", "params_total", 50000, None, 1),
        ("c", "per-image", "train_s", 3.0, None, 1),  # without an accuracy: no point
    )
    path = plot_cost(frame, tmp_path / "cost.svg")
    table = pd.read_csv(tmp_path / "cost.csv")
    assert table[["method", "cost", "cost_mean", "A_last_percent"]].values.tolist() == [
        ["a", "params_total", 0, 50],
        ["a", "train_s", 3, 50],
        ["b", "params_total", 50000, 90],
    ]
    assert table["A_last_std_ddof1_percent"].tolist()[0] == pytest.approx(1)
    text = path.read_text()
    assert "learned numbers beside the backbone" in text and "training (s, all tasks)" in text
    assert "a (per-image)" in text and "c (per-image)" not in text


def test_a_wide_scale_is_logarithmic_and_reaches_0_only_where_a_value_is_0():
    _, axes = new_figure(2, 2)
    for values, scale in (
        ([2, 3, 5], "linear"),
        ([2, 3, 50], "log"),
        ([0, 3, 50], "symlog"),
        ([-1, 3, 50], "linear"),
    ):
        axes.set_xscale("linear")
        assert set_wide_scale(axes, pd.Series(values), 10) == (scale != "linear")
        assert axes.get_xscale() == scale


@pytest.mark.parametrize("values", [[15, 640], [0.08, 0.9], [900, 2e6]])
def test_labels_of_a_logarithmic_scale_are_there_and_apart(values):
    figure, axes = new_figure(3, 2)
    axes.plot(values, [0, 1])
    assert set_wide_scale(axes, pd.Series(values), 10)
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    ticks = [t for t in axes.get_xticklabels(which="both") if low <= t.get_position()[0] <= high]
    boxes = sorted(t.get_window_extent().extents[::2].tolist() for t in ticks if t.get_text())
    assert len(boxes) > 1 and all(a[1] < b[0] for a, b in itertools.pairwise(boxes))


def test_what_can_not_be_drawn(tmp_path):
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_cost(summary(("a", "p", "A_last", 0.5, None, 1)), tmp_path / "c.png")
    with pytest.raises(ValueError, match="mixes the streams"):
        frame = summary(("a", "p", "A_last", 0.5, None, 1))
        plot_cost(pd.concat([frame, frame.assign(stream="other")]), tmp_path / "c.png")
    assert not list(tmp_path.iterdir())


def test_the_same_figure_is_the_same_svg(tmp_path):
    texts = []
    for name in ("a.svg", "b.svg"):
        figure, axes = new_figure(2, 2)
        axes.plot([0, 1], label="line")
        axes.set_title("words that stay text")
        texts.append(save(figure, tmp_path / name).read_text())
    assert (
        texts[0] == texts[1] and "words that stay text" in texts[0] and "<dc:date>" not in texts[0]
    )
