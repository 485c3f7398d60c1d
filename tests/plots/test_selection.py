"""The figure of chosen modules: the numbers in its CSV by hand, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tosca_avalanche.plots import plot_selection
from tosca_avalanche.plots.grid import draw_grid


def test_png_and_csv_by_hand(tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]) -> None:
    counts = np.array([[3, 1, 0], [0, 0, 0], [2, 2, 4]])
    path = plot_selection(counts, tmp_path / "s.png", "TOSCA, seed 1")
    width, height = png_size(path)
    assert 600 <= width <= 1600 and 400 <= height <= 1400
    table = pd.read_csv(tmp_path / "s.csv")
    assert list(table) == ["task", "module", "count", "row_percent"]
    assert table["task"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert table["module"].tolist() == [0, 1, 2] * 3
    assert table["count"].tolist() == counts.ravel().tolist()
    nan = np.nan  # no images of task 1: no shares
    np.testing.assert_allclose(table["row_percent"], [75, 25, 0, nan, nan, nan, 25, 25, 50])


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (12, 3), (3, 12), (13, 13), (100, 60)])
def test_any_shape(
    shape: tuple[int, int], tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    counts = np.random.default_rng(0).integers(1, 10_000, shape)
    path = plot_selection(counts, tmp_path / "s.png", "a title " * 20)
    assert max(png_size(path)) <= 1500
    table = pd.read_csv(path.with_suffix(".csv"))
    assert len(table) == counts.size
    np.testing.assert_allclose(table.groupby("task")["row_percent"].sum(), 100)


def test_the_cell_texts_fit_their_cells() -> None:
    counts = np.full((12, 12), 1_000_000)
    percent = np.full((12, 12), 100 / 12)
    labels = ("x", "y", "z")
    figure = draw_grid(percent, percent < 0, counts.astype(str), "title", labels)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    renderer = figure.canvas.get_renderer()
    cell = axes.get_window_extent(renderer).width / 12
    assert len(axes.texts) == 144
    assert max(text.get_window_extent(renderer).width for text in axes.texts) < cell


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.zeros((2, 2), int), "no image"),
        (np.zeros((0, 2), int), "no image"),
        (np.array([1, 2]), r"shape \(2,\)"),
        (np.array([[0.5]]), "dtype float64"),
        (np.array([[1, -2]]), r"table\[0, 1\] = -2"),
    ],
)
def test_bad_tables_are_named(table: np.ndarray, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        plot_selection(table, tmp_path / "s.png", "title")
    assert list(tmp_path.iterdir()) == []
