"""Heat maps of cosines: the numbers in the CSV, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tosca_avalanche.plots import plot_similarity


def test_png_and_csv(tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]) -> None:
    one, two = np.array([[1, -0.5], [0.25, 1]]), np.eye(13)
    panels = {("outputs", "trained"): one, ("matrices", "untrained"): two}
    path = plot_similarity(panels, tmp_path / "s.png", "title")
    assert max(png_size(path)) < 1500
    table = pd.read_csv(tmp_path / "s.csv")
    assert list(table) == ["row", "column", "module", "other", "cosine"]
    assert len(table) == 4 + 169
    first = table[table["column"] == "trained"]
    assert first[["module", "other"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert first["cosine"].tolist() == [1, -0.5, 0.25, 1]


@pytest.mark.parametrize(
    "matrix", [np.ones((2, 3)), np.ones(2), np.zeros((0, 0)), np.full((2, 2), 1.1),
               np.full((2, 2), np.nan)]
)  # fmt: skip
def test_what_is_no_matrix_of_cosines_is_refused(matrix: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\('a', 'b'\) has shape"):
        plot_similarity({("a", "b"): matrix}, tmp_path / "s.png", "title")
    with pytest.raises(ValueError, match="no panel"):
        plot_similarity({}, tmp_path / "s.png", "title")
    assert list(tmp_path.iterdir()) == []
