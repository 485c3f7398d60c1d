"""Forgetting over the tasks learned."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pandas as pd

from tosca_avalanche.plots.lines import draw_lines, line_table
from tosca_avalanche.plots.series import COLUMNS, check_columns, metric_rows
from tosca_avalanche.plots.style import figure_path, save, save_table


def plot_forgetting(frame: pd.DataFrame, path: str | Path, starred: Collection[str] = ()) -> Path:
    """Draw ``forgetting_max`` in percentage points; write PATH and PATH with suffix .csv.

    Lines, bands and CSV columns as in ``plot_accuracy``, from the second task on: after the
    first one there is nothing to forget.

    :param frame: tidy results of one stream (see ``plots.series``), values as fractions.
    :param starred: methods that get a star: their settings are not their defaults.
    :param path: where the figure goes, .png or .svg; folders are made.
    :return: the path of the figure.
    :raises ValueError: as ``plot_accuracy``, or forgetting is defined nowhere, as with one task.
    """
    path = figure_path(path)
    check_columns(frame, COLUMNS)
    if pd.to_numeric(frame["after_task"], errors="coerce").max() == 0:
        raise ValueError("forgetting needs two tasks: the frame has results of the first one only")
    rows = metric_rows(frame, "forgetting_max", lowest=-1.0)
    rows = rows[rows["after_task"] >= 1]
    if rows["value"].isna().all():
        raise ValueError(
            "forgetting needs two tasks: the frame has no defined value of 'forgetting_max' "
            "after the second task or later"
        )
    table = line_table(rows)
    figure, axes = draw_lines(frame, rows, table, "forgetting (percentage points)", starred)
    axes.axhline(0, color="#666666", linewidth=0.8, zorder=1)
    save_table(table, path)
    return save(figure, path)
