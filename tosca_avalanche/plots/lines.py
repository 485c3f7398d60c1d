"""Lines over the tasks learned, one per (method, protocol), with a band over the seeds."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tosca_avalanche.plots.series import (
    STARRED,
    line_names,
    line_places,
    lines_of,
    seed_means,
    seeds_of,
)
from tosca_avalanche.plots.style import (
    MAX_TICKS,
    legend_layout,
    light_grid,
    new_figure,
    series_style,
    wrapped,
)

_MIN_SPAN = 5.0


def line_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers that ``draw_lines`` draws, from the rows of one metric in percent.

    The columns are method, protocol, tasks_learned (after_task + 1), mean_percent,
    std_ddof1_percent and n_seeds; the lines keep the order in which the rows name them.
    """
    order = {name: k for k, name in enumerate(lines_of(rows))}
    table = seed_means(rows, ["after_task"])
    table["after_task"] += 1
    names = zip(table["method"], table["protocol"], strict=True)
    table = table.assign(line=[order[name] for name in names])
    table = table.sort_values(["line", "after_task"], ignore_index=True).drop(columns="line")
    return table.rename(
        columns={
            "after_task": "tasks_learned",
            "mean": "mean_percent",
            "std": "std_ddof1_percent",
        }
    )


def draw_lines(
    frame: pd.DataFrame,
    rows: pd.DataFrame,
    table: pd.DataFrame,
    y_label: str,
    starred: Collection[str] = (),
) -> tuple[Figure, Axes]:
    """Return a figure of ``table``, as ``line_table`` makes it from ``rows`` of ``frame``.

    A method's colour is the same in every figure; that of a protocol follows its place in
    ``frame``.

    :param starred: methods whose settings are not their defaults.
    """
    place = line_places(lines_of(frame))
    names = lines_of(rows)
    texts, title = line_names(names, str(rows["stream"].iloc[0]), starred)
    labels, columns, n_lines = legend_layout(
        [f"{text}, {seeds_of(rows, name)}" for name, text in zip(names, texts, strict=True)]
    )
    figure, axes = new_figure(7.2, 4.6 + 0.21 * n_lines)
    every = max(1, table["tasks_learned"].max() // MAX_TICKS)
    for name, label in zip(names, labels, strict=True):
        own = table[(table["method"] == name[0]) & (table["protocol"] == name[1])]
        _draw_line(axes, own, label, place[name], every)
    axes.set_title(wrapped(title, 70))
    axes.set_xlabel("tasks learned")
    axes.set_ylabel(y_label)
    light_grid(axes)
    _set_limits(axes, table)
    notes = []
    if table["std_ddof1_percent"].notna().any():
        notes.append("mean over seeds ± 1 standard deviation (ddof 1)")
    if starred:
        notes.append(STARRED)
    figure.legend(
        loc="outside lower center",
        ncols=columns,
        fontsize=9,
        title_fontsize=9,
        frameon=False,
        handlelength=3.2,
        title="; ".join(notes) or None,
    )
    return figure, axes


def _draw_line(axes: Axes, own: pd.DataFrame, label: str, place: int, every: int) -> None:
    x = own["tasks_learned"].to_numpy()
    mean = own["mean_percent"].to_numpy()
    std = own["std_ddof1_percent"].to_numpy()
    style = series_style(place)
    axes.plot(x, mean, label=label, markersize=5.5, linewidth=1.6, markevery=every, **style)
    if len(x) == 1:
        # a band over a single point has no area
        axes.errorbar(x, mean, yerr=std, color=style["color"], capsize=4, linestyle="none")
    else:
        axes.fill_between(x, mean - std, mean + std, color=style["color"], alpha=0.15, linewidth=0)


def _set_limits(axes: Axes, table: pd.DataFrame) -> None:
    first, last = table["tasks_learned"].min(), table["tasks_learned"].max()
    margin = min(max(0.4, 0.02 * (last - first)), 0.9)
    axes.set_xlim(first - margin, last + margin)
    if last - first < MAX_TICKS:
        axes.set_xticks(range(first, last + 1))
    else:
        axes.xaxis.set_major_locator(
            MaxNLocator(nbins=MAX_TICKS // 2, integer=True, steps=[1, 2, 5, 10])
        )
    low, high = axes.get_ylim()
    if high - low < _MIN_SPAN:
        # lines a tenth of a point apart must not look like a large difference
        middle = (low + high) / 2
        low, high = middle - _MIN_SPAN / 2, middle + _MIN_SPAN / 2
    axes.set_ylim(low, min(high, 102.0))
