"""Colours, markers, figures without a window, and files that are never half-written."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, NullFormatter

from tosca_avalanche.files import atomic_write

_YELLOW = "#F0E442"
# Okabe and Ito (2008), told apart by colour-blind readers; yellow, faint on white, comes last
# and gets a dark edge
PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#000000",
    "#E69F00",
    "#56B4E9",
    _YELLOW,
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
LINE_STYLES = ("-", "--", "-.", ":")
UNDEFINED_COLOUR = "#BBBBBB"
DPI = 150
MAX_TICKS = 20
_NO_DATE = {"Date": None}
# characters of the legend's font that fit on the 7.2-inch figure, beside the line samples
_LEGEND_WIDTH = {2: 42, 1: 92}


def series_style(index: int) -> dict[str, Any]:
    """Return colour, marker and line style of series ``index``, unlike those of the others.

    All three change from one series to the next, so that a print without colours can be read;
    the combination first repeats after 288 series.
    """
    colour = PALETTE[index % len(PALETTE)]
    style = {
        "color": colour,
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINE_STYLES[(index + index // len(PALETTE)) % len(LINE_STYLES)],
        "markeredgecolor": "#333333",
        "markeredgewidth": 0.5,
    }
    if colour == _YELLOW:
        style["path_effects"] = [withStroke(linewidth=2.6, foreground="#333333")]
    return style


def empty_figure(width: float, height: float) -> Figure:
    """Return a figure of width x height inches without axes.

    No pyplot: pyplot would keep the figure alive, and may look for a display.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of width x height inches and its axes."""
    figure = empty_figure(width, height)
    return figure, figure.add_subplot()


def light_grid(axes: Axes) -> None:
    """Draw grey grid lines behind everything else."""
    axes.grid(True, color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)


def draw_dots(axes: Axes, x: Any, y: Any, index: int, **more: Any) -> None:
    """Draw the points of series ``index``, not joined; bars take the colour of their point.

    :param more: for matplotlib's ``errorbar``: ``label``, ``xerr``, ``yerr``.
    """
    style = {**series_style(index), "linestyle": "none"}
    axes.errorbar(x, y, capsize=3, markersize=7, ecolor=style["color"], **style, **more)


def set_wide_scale(axes: Axes, values: pd.Series, factor: float) -> bool:
    """Make the x axis logarithmic where values span ``factor`` or more; return whether it is so.

    Where some of them are 0 the axis is linear from 0 to the smallest other one.
    """
    positive = values[values > 0]
    wide = len(positive) > 0 and bool((values >= 0).all())
    wide = wide and positive.max() >= factor * values.min()
    if wide and len(positive) == len(values):
        axes.set_xscale("log")
        if positive.max() < 100 * positive.min():  # so few powers of ten need more labels
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif wide:
        axes.set_xscale("symlog", linthresh=float(positive.min()))
        axes.set_xlim(left=-0.15 * float(positive.min()))
    return wide


def index_ticks(n: int) -> list[int]:
    """Return at most 20 evenly spaced integers from 0 to n - 1, beginning with 0."""
    return list(range(0, n, math.ceil(n / MAX_TICKS)))


def wrapped(text: str, width: int) -> str:
    """Return ``text`` in lines of at most ``width`` characters; its own line ends stay."""
    return "\n".join(textwrap.fill(line, width) for line in text.splitlines())


def legend_layout(labels: list[str]) -> tuple[list[str], int, int]:
    """Return the labels wrapped to fit under a figure, the number of columns and of lines."""
    columns = 2 if len(labels) > 1 and max(map(len, labels)) <= _LEGEND_WIDTH[2] else 1
    fitted = [wrapped(label, _LEGEND_WIDTH[columns]) for label in labels]
    lines = sum(label.count("\n") + 1 for label in fitted)
    return fitted, columns, math.ceil(lines / columns)


def figure_path(path: str | Path) -> Path:
    """Return ``path`` as a Path.

    :raises ValueError: it ends in neither .png nor .svg, the kinds of figures that there are.
    """
    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"path {str(path)!r}: pass a name that ends in .png or .svg")
    return path


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure, whole or not at all; return its path.

    A PNG has 150 dots per inch. An SVG keeps its text as text, has no date and no random
    name in it: the same figure is the same file.
    """
    path = figure_path(path)
    if path.suffix.lower() == ".png":
        return atomic_write(path, lambda p: figure.savefig(p, format="png", dpi=DPI))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tosca"}):
        return atomic_write(path, lambda p: figure.savefig(p, format="svg", metadata=_NO_DATE))


def save_table(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write the numbers of the figure ``path`` beside it, as a CSV file; return the CSV's path."""
    return atomic_write(
        figure_path(path).with_suffix(".csv"),
        lambda temporary: frame.to_csv(temporary, index=False, lineterminator="\n"),
    )
