"""Cosine similarities of modules with each other, as heat maps side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tosca_avalanche.plots.grid import TEXT_LIMIT
from tosca_avalanche.plots.style import empty_figure, figure_path, index_ticks, save, save_table

_PANEL = 2.7


def plot_similarity(
    panels: Mapping[tuple[str, str], NDArray[np.float64]], path: str | Path, title: str
) -> Path:
    """Draw matrices of cosine similarity on one scale from -1 to 1; write PATH and a CSV.

    Up to 12 x 12 the cells carry their number.

    :param panels: [modules, modules] by (row, column) of the panel, rows and columns of the
        figure in the order in which they come; the texts are their titles.
    :param path: where the figure goes, .png or .svg; folders are made.
    :return: the path of the figure. The CSV has the columns row, column, module, other and
        cosine.
    :raises ValueError: no panel, or one that is not a square matrix of cosines.
    """
    path = figure_path(path)
    if not panels:
        raise ValueError("there is no panel: nothing to draw")
    for name, matrix in panels.items():
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0
        if not square or not (np.abs(matrix) <= 1 + 1e-6).all():
            raise ValueError(f"{name} has shape {matrix.shape}: pass square cosines from -1 to 1")
    rows = list(dict.fromkeys(row for row, _ in panels))
    columns = list(dict.fromkeys(column for _, column in panels))
    size = (1.2 + _PANEL * len(columns), 1.0 + _PANEL * len(rows))
    figure = empty_figure(*size)
    figure.set_layout_engine("constrained", h_pad=0.1)  # titles clear of the ticks above them
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    image = None
    for axes in grid.ravel():
        axes.set_visible(False)
    for (row, column), matrix in panels.items():
        axes = grid[rows.index(row), columns.index(column)]
        axes.set_visible(True)
        # orange and purple: told apart by colour-blind readers, white in the middle
        image = axes.imshow(matrix, cmap="PuOr_r", vmin=-1, vmax=1, interpolation="nearest")
        ticks = index_ticks(len(matrix))
        axes.set_xticks(ticks)
        axes.set_yticks(ticks)
        axes.tick_params(labelsize=max(5.0, 9.0 - 0.25 * len(ticks)))
        axes.set_title(f"{row}\n{column}", fontsize=9)
        if len(matrix) <= TEXT_LIMIT:
            for (i, j), value in np.ndenumerate(matrix):
                axes.text(j, i, f"{value:.2f}", ha="center", va="center",
                          fontsize=min(8.0, 48.0 / len(matrix)),
                          color="white" if abs(value) > 0.6 else "black")  # fmt: skip
    assert image is not None
    figure.suptitle(title, fontsize=11)
    figure.supxlabel("module of task (the first is 0)", fontsize=10)
    figure.supylabel("module of task", fontsize=10)
    figure.colorbar(image, ax=grid, label="cosine similarity", shrink=0.7, aspect=30)
    save_table(_numbers(panels), path)
    return save(figure, path)


def _numbers(panels: Mapping[tuple[str, str], NDArray[np.float64]]) -> pd.DataFrame:
    parts = []
    for (row, column), matrix in panels.items():
        i, j = np.indices(matrix.shape)
        parts.append(
            pd.DataFrame(
                {
                    "row": row,
                    "column": column,
                    "module": i.ravel(),
                    "other": j.ravel(),
                    "cosine": matrix.ravel(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)
