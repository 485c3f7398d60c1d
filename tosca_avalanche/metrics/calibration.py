"""How far a method's confidence is from its accuracy."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tosca_avalanche.metrics.score import Score

BINS = 15


def reliability_table(
    confidence: ArrayLike, right: ArrayLike, bins: int = BINS
) -> NDArray[np.float64]:
    """Return [bins, 3]: of each bin of confidence the images, those right, the sum of confidence.

    Bin m of M holds confidences in (m / M, (m + 1) / M], and 0 goes to the first. Tables of
    several sets of images add up.

    >>> reliability_table([0.5, 0.9, 0.7], [True, True, False], bins=2)
    array([[1. , 1. , 0.5],
           [2. , 1. , 1.6]])

    :param confidence: [N], the probability that each image's answer was given, 0 .. 1.
    :param right: [N] booleans, whether it was right.
    :raises ValueError: arrays of unlike length, confidences outside 0 .. 1, or no bin.
    """
    sure, good = np.asarray(confidence, dtype=np.float64), np.asarray(right)
    if bins < 1:
        raise ValueError(f"bins = {bins}: pass at least 1")
    if sure.ndim != 1 or sure.shape != good.shape or (good.size and good.dtype != np.bool_):
        raise ValueError(
            f"confidence has shape {sure.shape}, right has shape {good.shape} and dtype "
            f"{good.dtype}: pass one number and one boolean per image"
        )
    outside = np.flatnonzero(~((sure >= 0) & (sure <= 1)))
    if len(outside):
        raise ValueError(
            f"confidence[{outside[0]}] = {sure[outside[0]]}: pass probabilities from 0 to 1"
        )
    upper = np.arange(1, bins + 1) / bins
    place = np.searchsorted(upper, sure)
    return np.stack(
        [np.bincount(place, weights, minlength=bins) for weights in (None, good, sure)], axis=1
    )


def expected_calibration_error(table: ArrayLike) -> Score:
    """Return ECE = sum_m (n_m / N) |accuracy_m - mean confidence_m|; n = N images.

    Source: Naeini et al. (AAAI 2015); Guo et al. (ICML 2017), eq. 3, with equal-width bins.
    It is 0 for a method that is right as often as it says, and depends on the bins.

    >>> expected_calibration_error(reliability_table([0.5, 1.0], [True, True], bins=2))
    Score(value=0.25, n=2)

    :param table: [bins, 3], as ``reliability_table`` makes it, or a sum of such tables.
    :raises ValueError: not such a table.
    """
    counts = checked_reliability(table)
    images = int(counts[:, 0].sum())
    gaps = [abs(right - sure) for _, right, sure in counts.tolist()]
    return Score(math.fsum(gaps) / images, images) if images else Score(None, 0)


def checked_reliability(table: ArrayLike) -> NDArray[np.float64]:
    """Return a table [bins, 3] of images, right ones and confidence as an array.

    :raises ValueError: another shape, or more right ones or confidence than images.
    """
    counts = np.asarray(table, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[1] != 3 or not len(counts):
        raise ValueError(f"table has shape {counts.shape}: pass [bins, 3] of reliability_table")
    # a sum of confidences may end a rounding above the number of images
    limit = counts[:, :1] * (1 + 1e-9)
    if not ((counts >= 0) & (counts <= limit)).all():
        m = int(np.flatnonzero(~((counts >= 0) & (counts <= limit)).all(axis=1))[0])
        raise ValueError(
            f"table[{m}] = {counts[m].tolist()}: pass images, right ones and the sum of confidence"
        )
    return counts
