"""Files written whole or not at all, figures without pyplot, series told apart."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from tosca_avalanche.plots import save, save_table
from tosca_avalanche.plots.style import index_ticks, new_figure, series_style


def test_a_figure_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    figure, axes = new_figure(2, 2)
    path = save(figure, tmp_path / "a.png")
    old = path.read_bytes()
    axes.set_title(r"$\frac{$")  # not valid mathtext: drawing fails half-way
    with pytest.raises(ValueError):
        save(figure, path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_the_table_goes_beside_the_figure_and_keeps_every_digit(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [0.1 + 0.2, None], "y": ["a,b", "c"]})
    path = save_table(frame, tmp_path / "run.1.png")
    assert path == tmp_path / "run.1.csv"
    assert path.read_text() == 'x,y\n0.30000000000000004,"a,b"\n,c\n'
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["a.csv", "a", "a.pdf"])
def test_another_ending_is_refused(name: str, tmp_path: Path) -> None:
    figure, _ = new_figure(2, 2)
    with pytest.raises(ValueError, match=r"ends in \.png or \.svg"):
        save(figure, tmp_path / name)
    with pytest.raises(ValueError, match=r"ends in \.png or \.svg"):
        save_table(pd.DataFrame(), tmp_path / name)


def test_no_pyplot_and_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys, numpy\n"
        "from tosca_avalanche.plots import plot_selection\n"
        f"plot_selection(numpy.eye(2, dtype=int), {str(tmp_path / 's.png')!r}, 'title')\n"
        "print([m for m in ('matplotlib.pyplot', 'torch', 'avalanche') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_series_differ_in_print_without_colours() -> None:
    styles = [series_style(k) for k in range(288)]
    for a, b in pairwise(styles):
        assert a["marker"] != b["marker"]
    keys = {(style["color"], style["marker"], style["linestyle"]) for style in styles}
    assert len(keys) == 288
    assert len({style["color"] for style in styles[:8]}) == 8


@pytest.mark.parametrize("n", [1, 5, 20, 21, 500])
def test_ticks_are_few_and_even(n: int) -> None:
    ticks = index_ticks(n)
    assert ticks[0] == 0 and len(ticks) <= 20 and ticks[-1] < n
    assert len({b - a for a, b in pairwise(ticks)}) <= 1
