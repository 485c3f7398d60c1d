"""Settings side by side: one panel for each thing measured, one line of dots a setting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tosca_avalanche.plots.series import check_columns
from tosca_avalanche.plots.style import (
    draw_dots,
    empty_figure,
    figure_path,
    legend_layout,
    light_grid,
    save,
    save_table,
    set_wide_scale,
    wrapped,
)

_COLUMNS = ["setting", "protocol", "panel", "mean", "std_ddof1", "n"]
_LABEL_WIDTH = 38
_PANEL = 2.9
_MIN_SPAN = 5.0
# a panel whose largest mean is this many times its smallest is logarithmic, unless in percent
_LOG_FROM = 20


def plot_dots(table: pd.DataFrame, path: str | Path, title: str) -> Path:
    """Draw the mean of every setting in every panel; write PATH and a CSV, the table itself.

    Settings are lines from top to bottom in the order of the table, panels stand side by
    side. Colour and marker tell the protocol. Bars are ± 1 standard deviation (ddof 1) over
    seeds, where there are two or more. An undefined mean is left out.

    :param table: one row per setting, protocol and panel, with the columns setting,
        protocol, panel (the text of its axis, with the unit), mean, std_ddof1 and n (seeds).
    :param path: where the figure goes, .png or .svg; folders are made.
    :return: the path of the figure.
    :raises ValueError: a missing column, no defined mean, or a setting twice in a panel.
    """
    path = figure_path(path)
    check_columns(table, _COLUMNS)
    if table["mean"].isna().all():
        raise ValueError("every mean is undefined: nothing to draw")
    twice = table[table.duplicated(["setting", "protocol", "panel"])]
    if len(twice):
        one = twice.iloc[0]
        raise ValueError(f"{one['setting']!r} ({one['protocol']}) is twice in {one['panel']!r}")
    lines = list(dict.fromkeys(zip(table["setting"], table["protocol"], strict=True)))
    protocols, panels = list(table["protocol"].unique()), list(table["panel"].unique())
    labels = [wrapped(str(setting), _LABEL_WIDTH) for setting, _ in lines]
    heights = sum(label.count("\n") + 1 for label in labels)
    texts, columns, legend = legend_layout([str(p) for p in protocols])
    width = 3.2 + _PANEL * len(panels)
    title = wrapped(title, int(11 * width))
    extra = 0.21 * (legend + title.count("\n"))
    figure = empty_figure(width, 1.9 + 0.27 * max(heights, len(lines) + 1) + extra)
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        own = table[table["panel"] == panel].set_index(["setting", "protocol"])
        _draw_panel(axes, own, lines, protocols, texts)
        axes.set_xlabel(wrapped(str(panel), 32))
    grid[0].set_yticks(range(len(lines)), labels)
    grid[0].set_ylim(len(lines) - 0.5, -0.5)
    figure.suptitle(title, fontsize=11)
    spread = table["std_ddof1"].notna().any()
    handles, names = _handles(grid, texts)
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=columns,
        fontsize=9,
        title_fontsize=9,
        frameon=False,
        title="protocol" + ("; mean over seeds ± 1 standard deviation (ddof 1)" * bool(spread)),
    )
    save_table(table[_COLUMNS], path)
    return save(figure, path)


def _draw_panel(
    axes: Axes,
    own: pd.DataFrame,
    lines: list[tuple[str, str]],
    protocols: list[str],
    texts: list[str],
) -> None:
    for height, line in enumerate(lines):
        if line not in own.index or pd.isna(own.loc[line, "mean"]):
            continue
        place = protocols.index(line[1])
        std = own.loc[line, "std_ddof1"]
        bar = None if pd.isna(std) else std
        draw_dots(axes, own.loc[line, "mean"], height, place, label=texts[place], xerr=bar)
    means, percent = own["mean"].dropna(), str(own["panel"].iloc[0]).endswith("(%)")
    wide = not percent and set_wide_scale(axes, means, _LOG_FROM)
    if len(means) and not wide:
        _widen(axes, percent, bool((means >= 0).all()))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    light_grid(axes)


def _widen(axes: Axes, percent: bool, positive: bool) -> None:
    """Keep dots a tenth of a point apart from looking like a large difference."""
    low, high = axes.get_xlim()
    middle = (low + high) / 2
    least = _MIN_SPAN if percent else 0.1 * abs(middle)
    half = max((high - low) * 0.55, least / 2, np.finfo(float).tiny)
    low, high = middle - half, middle + half
    axes.set_xlim(max(low, -0.03 * (high - low)) if positive and middle >= 0 else low, high)


def _handles(grid: np.ndarray, texts: list[str]) -> tuple[list[Artist], list[str]]:
    """Return a legend's handles and texts, each once, whatever panel has it."""
    found: dict[str, Artist] = {}
    for axes in grid:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(text, handle)
    known = [text for text in texts if text in found]
    return [found[text] for text in known], known
