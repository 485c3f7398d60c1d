"""Maps side by side: the points in the CSV, many groups, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tosca_avalanche.plots import plot_maps


def points(panels: int, groups: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        [
            (f"panel {p}\nscore 0.1", *rng.normal(size=2), f"group {g}", "more")
            for p in range(panels)
            for g in range(groups)
            for _ in range(3)
        ],
        columns=["panel", "x", "y", "group", "extra"],
    )


@pytest.mark.parametrize(("panels", "groups"), [(1, 1), (3, 10), (3, 40)])
def test_png_and_csv(
    panels: int, groups: int, tmp_path: Path, png_size: Callable[[Path], tuple[int, int]]
) -> None:
    own = points(panels, groups)
    path = plot_maps(own, tmp_path / "m.png", "a long title " * 12, "task")
    assert max(png_size(path)) < 2600
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "m.csv"), own)


def test_refusals(tmp_path: Path) -> None:
    own = points(1, 2)
    for bad, message in (
        (own.drop(columns="group"), r"column\(s\) group"),
        (own[:0], "0 points"),
        (own.assign(x=np.nan), "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_maps(bad, tmp_path / "m.png", "t", "class")
    assert list(tmp_path.iterdir()) == []
