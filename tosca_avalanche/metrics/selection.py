"""Which module answered for the images of which task."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tosca_avalanche.metrics.counts import Counts, checked_integers
from tosca_avalanche.metrics.score import Score, share_score


def selection_table(task: ArrayLike, module: ArrayLike, n_tasks: int, n_modules: int) -> Counts:
    """Return the table [n_tasks, n_modules] of images by true task and chosen module, int64.

    >>> selection_table(task=[0, 0, 1], module=[0, 1, 1], n_tasks=2, n_modules=2)
    array([[1, 1],
           [0, 1]])

    :param task: [N] integers, the true task of each image, 0 .. n_tasks - 1.
    :param module: [N] integers, the module chosen for each image, 0 .. n_modules - 1.
    :raises ValueError: arrays of unlike length, values out of range, or a size below 1.
    """
    limits = {"task": n_tasks, "module": n_modules}
    arrays = {
        "task": checked_integers(task, "task", 1),
        "module": checked_integers(module, "module", 1),
    }
    if len(arrays["task"]) != len(arrays["module"]):
        raise ValueError(
            f"task has {len(arrays['task'])} values and module has {len(arrays['module'])}: "
            "pass one of each per image"
        )
    for name, array in arrays.items():
        limit = limits[name]
        if limit < 1:
            raise ValueError(f"n_{name}s = {limit}: pass at least 1")
        outside = np.flatnonzero((array < 0) | (array >= limit))
        if len(outside):
            raise ValueError(
                f"{name}[{outside[0]}] = {array[outside[0]]}: pass values from 0 to {limit - 1}, "
                f"or a larger n_{name}s (now {limit})"
            )
    cells = arrays["task"] * n_modules + arrays["module"]
    counts = np.bincount(cells, minlength=n_tasks * n_modules)
    return counts.reshape(n_tasks, n_modules).astype(np.int64)


def selection_accuracy(table: ArrayLike) -> Score:
    """Return the share of images on the diagonal: module t chosen for task t; n = the images.

    Images of a task without a module of its own (more tasks than modules) count as wrong.

    >>> selection_accuracy([[3, 1], [0, 4]])  # 7 of 8
    Score(value=0.875, n=8)

    :param table: [n_tasks, n_modules] counts, as ``selection_table`` makes them.
    :raises ValueError: not a two-dimensional array of integers >= 0.
    """
    counts = checked_integers(table, "table", 2)
    if (counts < 0).any():
        t, m = np.argwhere(counts < 0)[0]
        raise ValueError(f"table[{t}, {m}] = {counts[t, m]}: a count can't be negative")
    return share_score(int(np.trace(counts)), int(counts.sum()))
