"""The reliability diagram: the numbers in its CSV by hand, its texts, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tosca_avalanche.metrics import reliability_table
from tosca_avalanche.plots import plot_reliability
from tosca_avalanche.plots import reliability as module


def test_png_and_csv_by_hand(tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]) -> None:
    table = reliability_table([0.25, 0.375, 1.0, 0.875], [True, False, True, True], bins=4)
    path = plot_reliability(table, tmp_path / "r.png", "TOSCA")
    assert png_size(path) == (840, 960)
    numbers = pd.read_csv(tmp_path / "r.csv")
    assert list(numbers) == ["bin", "low_percent", "high_percent", "images", "right_percent",
                             "mean_confidence_percent"]  # fmt: skip
    assert numbers["images"].tolist() == [1, 1, 0, 2]
    assert numbers["low_percent"].tolist() == [0, 25, 50, 75]
    nan = np.nan  # no images in a bin: no share
    np.testing.assert_allclose(numbers["right_percent"], [100, 0, nan, 100])
    np.testing.assert_allclose(numbers["mean_confidence_percent"], [25, 37.5, nan, 93.75])


@pytest.mark.parametrize(("bins", "scale"), [(1, 1), (15, 1), (15, 10**6), (50, 300)])
def test_no_two_texts_overlap(bins: int, scale: int, monkeypatch: pytest.MonkeyPatch,
                              tmp_path: Path) -> None:  # fmt: skip
    figures = []
    draw = module._draw
    monkeypatch.setattr(module, "_draw", lambda *a: figures.append(draw(*a)) or figures[-1])
    rng = np.random.default_rng(0)
    sure = rng.random(2000)
    table = reliability_table(sure, rng.random(2000) < sure**2, bins) * scale
    plot_reliability(table, tmp_path / "r.png", "a long name of a method (per-image) " * 3)
    (figure,) = figures
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    texts = [a.title for a in figure.axes] + list(figure.legends[0].get_texts())
    for axes in figure.axes:
        texts += [axes.xaxis.label, axes.yaxis.label]
        low, high = axes.get_ylim()
        texts += [t for t in axes.get_yticklabels() if low <= t.get_position()[1] <= high]
    texts += figure.axes[1].get_xticklabels()
    boxes = [(t, t.get_window_extent(renderer)) for t in texts if t.get_text() and t.get_visible()]
    assert len(boxes) > 12
    for (one, a), (other, b) in combinations(boxes, 2):
        inside = min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
        assert not inside, (one.get_text(), other.get_text())
    width, height = figure.canvas.get_width_height()
    assert all(b.x0 >= -1 and b.x1 <= width + 1 and b.y1 <= height + 1 for _, b in boxes)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.zeros((3, 3)), "no image"),
        (np.zeros(3), "shape"),
        (np.ones((1, 3)) * -1, "less than none"),
    ],
)
def test_bad_tables_are_named(table: np.ndarray, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        plot_reliability(table, tmp_path / "r.png", "title")
    assert list(tmp_path.iterdir()) == []
