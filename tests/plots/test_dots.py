"""Settings side by side: the CSV is the table, labels don't overlap, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tosca_avalanche.plots import plot_dots


def table(n: int = 3, panels: int = 2, std: float = 1.0) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (f"a setting with a rather long name {i}", f"protocol-{i % 2}", f"panel {p} (%)",
             50 + i + p, std, 2)
            for p in range(panels)
            for i in range(n)
        ],
        columns=["setting", "protocol", "panel", "mean", "std_ddof1", "n"],
    )  # fmt: skip


@pytest.mark.parametrize(("n", "panels", "std"), [(1, 1, np.nan), (7, 4, 2.0), (30, 2, np.nan)])
def test_png_and_csv(
    n: int, panels: int, std: float, tmp_path: Path,
    png_size: Callable[[Path], tuple[int, int]],
) -> None:  # fmt: skip
    own = table(n, panels, std)
    path = plot_dots(own, tmp_path / "d.png", "a title " * 20)
    assert max(png_size(path)) <= 2800
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "d.csv"), own, check_dtype=False)


def test_undefined_means_and_wide_ranges_are_drawn(tmp_path: Path) -> None:
    own = table(3, 1)
    own["mean"] = [0.001, 1e6, np.nan]
    assert plot_dots(own, tmp_path / "d.svg", "t").stat().st_size > 0
    assert pd.read_csv(tmp_path / "d.csv")["mean"].isna().sum() == 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (table().drop(columns="n"), r"lacks the column\(s\) n"),
        (table().assign(mean=np.nan), "every mean is undefined"),
        (pd.concat([table(), table()]), "is twice in 'panel 0"),
    ],
)
def test_bad_tables_are_named(bad: pd.DataFrame, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        plot_dots(bad, tmp_path / "d.png", "t")
    assert list(tmp_path.iterdir()) == []
