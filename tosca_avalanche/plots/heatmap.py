"""The accuracy matrix R: tested on task i after task t."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tosca_avalanche.plots.grid import cell_texts, draw_grid
from tosca_avalanche.plots.series import (
    COLUMNS,
    check_columns,
    metric_rows,
    seed_means,
    series_label,
    task_index,
)
from tosca_avalanche.plots.style import figure_path, save, save_table


def plot_heatmap(frame: pd.DataFrame, path: str | Path) -> Path:
    """Draw R[t, i] (metric ``acc``) in percent; write PATH and PATH with suffix .csv.

    The mean over the seeds of one (method, protocol), lower triangle only; rows with
    eval_task > after_task are ignored. Cells without test samples are grey. Up to 12 tasks the
    cells carry their number.

    :param frame: tidy results (see ``plots.series``), values as fractions.
    :param path: where the figure goes, .png or .svg; folders are made.
    :return: the path of the figure. The CSV has the columns method, protocol, after_task,
        eval_task, mean_percent and n_seeds (the seeds averaged), one row per cell.
    :raises ValueError: a missing column or metric, several methods, protocols or streams,
        several runs or missing cells of a seed, or values that are not fractions.
    """
    path = figure_path(path)
    check_columns(frame, [*COLUMNS, "eval_task"])
    rows = metric_rows(frame, "acc")
    for column in ("method", "protocol"):
        names = sorted(map(str, rows[column].unique()))
        if len(names) > 1:
            raise ValueError(
                f"the frame mixes the {column}s {', '.join(names)}: a heat map shows one, pass "
                f"frame[frame[{column!r}] == {names[0]!r}]"
            )
    rows["eval_task"] = task_index(rows, "eval_task")
    rows = rows[rows["eval_task"] <= rows["after_task"]]
    if rows["value"].isna().all():
        raise ValueError("every value of 'acc' with eval_task <= after_task is undefined")
    method, protocol = rows["method"].iloc[0], rows["protocol"].iloc[0]

    means = seed_means(rows, ["after_task", "eval_task"])
    n_tasks = int(means["after_task"].max()) + 1
    percent = np.full((n_tasks, n_tasks), np.nan)
    n_seeds = np.zeros((n_tasks, n_tasks), dtype=int)
    percent[means["after_task"], means["eval_task"]] = means["mean"]
    n_seeds[means["after_task"], means["eval_task"]] = means["n_seeds"]

    after, tested = np.tril_indices(n_tasks)
    table = pd.DataFrame(
        {
            "method": method,
            "protocol": protocol,
            "after_task": after,
            "eval_task": tested,
            "mean_percent": percent[after, tested],
            "n_seeds": n_seeds[after, tested],
        }
    )
    lower = np.tri(n_tasks, dtype=bool)
    title = f"{series_label(rows, method, protocol)}\n{rows['stream'].iloc[0]}"
    labels = ("task tested (the first is 0)", "after learning task", "accuracy (%)")
    figure = draw_grid(percent, lower & np.isnan(percent), cell_texts(percent, 1), title, labels)
    save_table(table, path)
    return save(figure, path)
