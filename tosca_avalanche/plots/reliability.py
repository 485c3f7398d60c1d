"""How often a method is right, over how sure it says it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tosca_avalanche.plots.style import (
    PALETTE,
    empty_figure,
    figure_path,
    light_grid,
    save,
    save_table,
    wrapped,
)


def plot_reliability(table: NDArray[np.float64], path: str | Path, title: str) -> Path:
    """Draw the reliability diagram of a table of bins; write PATH and a CSV.

    Above, each bin's share of right answers as a bar and a point at its mean confidence;
    on the dashed line a method is right as often as it says. Below, how many images a bin
    has. A bin without images is empty: no samples, not 0 %.

    :param table: [bins, 3], as ``metrics.reliability_table`` makes it.
    :param path: where the figure goes, .png or .svg; folders are made.
    :return: the path of the figure. The CSV has the columns bin, low_percent, high_percent,
        images, right_percent and mean_confidence_percent.
    :raises ValueError: not such a table, or one without images.
    """
    path = figure_path(path)
    counts = np.asarray(table, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[1] != 3:
        raise ValueError(
            f"table has shape {counts.shape}: pass [bins, 3], the images, the right ones and the "
            "sum of confidence of each bin"
        )
    if (counts < 0).any() or not counts.sum():
        raise ValueError("table counts no image, or less than none: there is nothing to draw")
    bins = len(counts)
    images = np.where(counts[:, 0] > 0, counts[:, 0], np.nan)
    numbers = pd.DataFrame(
        {
            "bin": range(bins),
            "low_percent": 100 * np.arange(bins) / bins,
            "high_percent": 100 * np.arange(1, bins + 1) / bins,
            "images": counts[:, 0].astype(np.int64),
            "right_percent": 100 * counts[:, 1] / images,
            "mean_confidence_percent": 100 * counts[:, 2] / images,
        }
    )
    figure = _draw(numbers, title)
    save_table(numbers, path)
    return save(figure, path)


def _draw(numbers: pd.DataFrame, title: str) -> Figure:
    figure = empty_figure(5.6, 6.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    width = 100 / len(numbers)
    middle = numbers["low_percent"] + width / 2
    own = {"width": 0.92 * width, "linewidth": 0}
    above.bar(middle, numbers["right_percent"], color=PALETTE[0], alpha=0.35, **own)
    above.plot([0, 100], [0, 100], linestyle="--", color="#555555", label="right as often as said")
    above.plot(
        numbers["mean_confidence_percent"],
        numbers["right_percent"],
        linestyle="none",
        marker="o",
        markersize=5,
        color=PALETTE[0],
        label="images of a bin, at their mean confidence",
    )
    above.set(xlim=(0, 100), ylim=(0, 102), ylabel="answered right (%)")
    above.set_title(wrapped(title, 58), fontsize=11)
    light_grid(above)
    below.bar(middle, numbers["images"], color=PALETTE[4], alpha=0.55, **own)
    below.set(xlabel="confidence: probability of the answer (%)", ylabel="images")
    figure.legend(loc="outside lower center", fontsize=9, frameon=False, ncols=1)
    return figure
