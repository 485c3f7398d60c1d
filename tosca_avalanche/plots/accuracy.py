"""Accuracy on all classes seen, over the tasks learned."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pandas as pd

from tosca_avalanche.plots.lines import draw_lines, line_table
from tosca_avalanche.plots.series import metric_rows
from tosca_avalanche.plots.style import figure_path, save, save_table


def plot_accuracy(frame: pd.DataFrame, path: str | Path, starred: Collection[str] = ()) -> Path:
    """Draw A_t (metric ``A_t``) in percent over tasks learned; write PATH and PATH with .csv.

    One line per (method, protocol): the mean over its seeds, and a band of ± 1 standard
    deviation (ddof 1) where there are two or more. A step without test samples is a gap.

    :param frame: tidy results of one stream (see ``plots.series``), values as fractions.
    :param starred: methods that get a star: their settings are not their defaults.
    :param path: where the figure goes, .png or .svg; folders are made.
    :return: the path of the figure. The CSV has the columns method, protocol, tasks_learned,
        mean_percent, std_ddof1_percent and n_seeds.
    :raises ValueError: a missing column or metric, mixed streams, several runs or missing steps
        of a seed, values that are not fractions or all undefined, or another suffix.
    """
    path = figure_path(path)
    rows = metric_rows(frame, "A_t")
    if rows["value"].isna().all():
        raise ValueError("every value of 'A_t' is undefined: no step has test samples")
    table = line_table(rows)
    figure, axes = draw_lines(frame, rows, table, "accuracy on all classes seen (%)", starred)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], -2.0))
    save_table(table, path)
    return save(figure, path)
