"""A table of percentages drawn as coloured cells."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from tosca_avalanche.plots.style import UNDEFINED_COLOUR, index_ticks, new_figure, wrapped

TEXT_LIMIT = 12


def draw_grid(
    percent: NDArray[np.float64],
    undefined: NDArray[np.bool_],
    texts: NDArray[np.str_],
    title: str,
    labels: tuple[str, str, str],
    top: float = 100.0,
) -> Figure:
    """Return a figure of [rows, columns] cells coloured by percent, on a scale from 0 to ``top``.

    :param percent: [rows, columns], NaN for a cell that stays empty.
    :param undefined: [rows, columns], the empty cells to mark grey: no samples, not 0 %.
    :param texts: [rows, columns], written in the cells of a table of at most 12 x 12.
    :param labels: of the columns, the rows and the colour scale.
    """
    n_rows, n_columns = percent.shape
    cell = 0.58 if max(percent.shape) <= TEXT_LIMIT else 0.32
    width = min(max(2.2 + cell * n_columns, 5.0), 10.0)
    title = wrapped(title, int(10 * (width - 1.0)))
    height = min(max(1.2 + cell * n_rows, 3.2), 8.5) + 0.2 * title.count("\n")
    figure, axes = new_figure(width, height)
    image = axes.imshow(
        np.ma.masked_invalid(percent),
        cmap="viridis",  # no grey in it: grey marks undefined cells
        vmin=0,
        vmax=top,
        aspect="auto",
        interpolation="nearest",
    )
    for row, column in np.argwhere(undefined):
        axes.add_patch(
            Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=UNDEFINED_COLOUR, linewidth=0)
        )
    if max(percent.shape) <= TEXT_LIMIT:
        _write_texts(axes, percent, texts, top / 2)
    axes.set_xticks(index_ticks(n_columns))
    axes.set_yticks(index_ticks(n_rows))
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(labels[0] + ("\n(grey: no test samples)" if undefined.any() else ""))
    axes.set_ylabel(labels[1])
    figure.colorbar(image, ax=axes, label=labels[2])
    return figure


def cell_texts(percent: NDArray[np.float64], digits: int) -> NDArray[np.str_]:
    """Return percentages as the texts of their cells; an empty one has none."""
    return np.array([["" if np.isnan(p) else f"{p:.{digits}f}" for p in row] for row in percent])


def _write_texts(
    axes: Axes, percent: NDArray[np.float64], texts: NDArray[np.str_], middle: float
) -> None:
    longest = max(map(len, texts.ravel().tolist()), default=0)
    size = 9.0 if longest <= 5 else max(4.5, 45.0 / longest)
    for (row, column), text in np.ndenumerate(texts):
        # the colour map is dark below its middle
        dark = percent[row, column] < middle
        axes.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize=size,
            color="white" if dark else "black",
        )
