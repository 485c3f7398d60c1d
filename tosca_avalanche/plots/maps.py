"""Two-dimensional maps of features, such as those of t-SNE, side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.artist import Artist

from tosca_avalanche.plots.series import check_columns
from tosca_avalanche.plots.style import (
    empty_figure,
    figure_path,
    save,
    save_table,
    series_style,
    wrapped,
)

_LEGEND_LINES = 16


def plot_maps(points: pd.DataFrame, path: str | Path, title: str, legend: str) -> Path:
    """Draw a panel of points for each map, coloured by group; write PATH and a CSV.

    Axes have no unit and no ticks: distances in such maps have none. One legend serves all
    panels; groups differ by colour and marker.

    :param points: one row per point with the columns panel (its title), x, y and group, and
        any others that the CSV should have.
    :param path: where the figure goes, .png or .svg; folders are made.
    :param legend: what the groups are.
    :return: the path of the figure.
    :raises ValueError: a missing column, no points, or a coordinate that is not finite.
    """
    path = figure_path(path)
    check_columns(points, ["panel", "x", "y", "group"])
    if points.empty or not np.isfinite(points[["x", "y"]].to_numpy(float)).all():
        raise ValueError(f"{len(points)} points: pass at least one, all with finite x and y")
    panels, groups = list(points["panel"].unique()), list(points["group"].unique())
    columns = -(-len(groups) // _LEGEND_LINES)
    beside = 0.7 + columns * (0.35 + 0.075 * min(24, max(len(str(g)) for g in groups)))
    width = 3.5 * len(panels) + beside
    figure = empty_figure(width, 4.6)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    handles: list[Artist] = []
    for axes, panel in zip(grid, panels, strict=True):
        own = points[points["panel"] == panel]
        handles = []
        for i, group in enumerate(groups):
            of_group = own[own["group"] == group]
            style = {**series_style(i), "linestyle": "none", "markeredgewidth": 0.3}
            style.pop("path_effects", None)  # every marker has its dark edge
            handles += axes.plot(of_group["x"], of_group["y"], markersize=4.5, alpha=0.85, **style)
        axes.set_title(wrapped(str(panel), 40), fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel("first coordinate (no unit)", fontsize=9)
    grid[0].set_ylabel("second coordinate (no unit)", fontsize=9)
    figure.suptitle(wrapped(title, int(11 * width)), fontsize=11)
    names = [wrapped(str(group), 24) for group in groups]
    figure.legend(handles, names, loc="outside right center", ncols=columns, title=legend,
                  fontsize=9, title_fontsize=9, frameon=False, markerscale=1.4)  # fmt: skip
    save_table(points, path)
    return save(figure, path)
