"""Which module or prompt the images of which task chose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tosca_avalanche.plots.grid import cell_texts, draw_grid
from tosca_avalanche.plots.style import figure_path, save, save_table


def plot_selection(
    table: NDArray[np.integer], path: str | Path, title: str, what: str = "module"
) -> Path:
    """Draw which modules (or prompts) each task's images chose; write PATH and a CSV.

    Rows are tasks, columns modules; each row sums to 100 % of the choices, of which an image
    makes one, or several where it takes several prompts: the scale ends at the largest share.
    Up to 12 x 12 the cells carry the percentages. A task without images is a grey row: no
    samples, not 0 %.

    :param table: [tasks, modules] counts, as ``metrics.selection_table`` makes them.
    :param what: "module" or "prompt", for the axis and the CSV's column.
    :param path: where the figure goes, .png or .svg; folders are made.
    :return: the path of the figure. The CSV has the columns task, WHAT, count and row_percent.
    :raises ValueError: not a two-dimensional array of integers >= 0 with at least one image.
    """
    path = figure_path(path)
    counts = np.asarray(table)
    if counts.ndim != 2 or counts.dtype.kind not in "iu":
        raise ValueError(
            f"table has shape {counts.shape} and dtype {counts.dtype}: pass integer counts "
            "[tasks, modules]"
        )
    if (counts < 0).any():
        row, column = np.argwhere(counts < 0)[0]
        raise ValueError(f"table[{row}, {column}] = {counts[row, column]}: pass counts >= 0")
    if counts.sum() == 0:
        raise ValueError("table counts no image: there is no selection to draw")

    images = np.broadcast_to(counts.sum(axis=1, keepdims=True), counts.shape)
    percent = np.full(counts.shape, np.nan)
    np.divide(100.0 * counts, images, out=percent, where=images > 0)
    labels = (f"{what} chosen", "task of the image", "share of the task's choices (%)")
    top = 100.0 if what == "module" else float(np.nanmax(percent))
    figure = draw_grid(percent, images == 0, cell_texts(percent, 0), title, labels, top)
    tasks, modules = np.indices(counts.shape)
    numbers = pd.DataFrame(
        {
            "task": tasks.ravel(),
            what: modules.ravel(),
            "count": counts.ravel(),
            "row_percent": percent.ravel(),
        }
    )
    save_table(numbers, path)
    return save(figure, path)
