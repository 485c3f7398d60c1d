"""Checks of the two count arrays that every accuracy and forgetting metric reads."""

from __future__ import annotations

import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts = NDArray[np.int64]


def checked_integers(values: ArrayLike, name: str, ndim: int) -> Counts:
    """Return ``values`` as a signed 64-bit array of ``ndim`` dimensions.

    Signed, because a difference of unsigned counts would wrap around.

    >>> checked_integers([1, 2], "task", 1)
    array([1, 2])

    :param name: what to call the array in an error.
    :raises ValueError: another number of dimensions, or values that are not integers.
    """
    array = np.asarray(values)
    if array.ndim != ndim:
        raise ValueError(
            f"{name} has shape {array.shape}: pass an integer array of {ndim} dimension(s)"
        )
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name} has dtype {array.dtype}: pass integers")
    return array.astype(np.int64)


def checked_counts(correct: ArrayLike, total: ArrayLike) -> tuple[Counts, Counts]:
    """Return both arrays as int64 with the entries i > t set to 0.

    >>> correct, total = checked_counts([[1, 9], [1, 2]], [[1, 0], [1, 2]])
    >>> correct
    array([[1, 0],
           [1, 2]])

    :param correct: [T, T] integers, ``correct[t, i]`` test samples of task i right after task t.
    :param total: [T, T] integers, ``total[t, i]`` test samples of task i read after task t.
    :raises ValueError: not two square integer arrays of one shape with T >= 1, or not
        0 <= correct <= total where i <= t.
    """
    right = checked_integers(correct, "correct", 2)
    tested = checked_integers(total, "total", 2)
    for name, array in (("correct", right), ("total", tested)):
        if array.shape[0] != array.shape[1] or array.shape[0] == 0:
            raise ValueError(
                f"{name} has shape {array.shape}: pass a square array [T, T] with T >= 1, "
                "a row for each task learned and a column for each task tested"
            )
    if right.shape != tested.shape:
        raise ValueError(
            f"correct has shape {right.shape} and total has shape {tested.shape}: "
            "pass both for the same tasks"
        )
    right, tested = np.tril(right), np.tril(tested)
    for name, array in (("correct", right), ("total", tested)):
        if array.min() < 0:
            t, i = np.argwhere(array < 0)[0]
            raise ValueError(f"{name}[{t}, {i}] = {array[t, i]}: a count can't be negative")
    if (right > tested).any():
        t, i = np.argwhere(right > tested)[0]
        raise ValueError(
            f"correct[{t}, {i}] = {right[t, i]} is more than total[{t}, {i}] = {tested[t, i]}: "
            "pass counts, the number right first and the number tested second"
        )
    return right, tested


def checked_task(task: int, n_tasks: int, name: str) -> int:
    """Return ``task`` as a Python int within 0 .. n_tasks - 1.

    >>> checked_task(1, 3, "t")
    1

    :raises ValueError: outside that range; a negative index is not counted from the end.
    """
    index = operator.index(task)
    if not 0 <= index < n_tasks:
        raise ValueError(f"{name} = {index}: pass a task index from 0 to {n_tasks - 1}")
    return index


def rates(correct: Counts, total: Counts) -> NDArray[np.float64]:
    """Return R[t, i] = correct[t, i] / total[t, i], [T, T], of checked counts.

    NaN marks what is undefined (i > t, or no test samples); no metric lets it out.

    >>> rates(*checked_counts([[1, 0], [1, 2]], [[2, 0], [1, 2]]))
    array([[0.5, nan],
           [1. , 1. ]])
    """
    out = np.full(correct.shape, np.nan)
    np.divide(correct, total, out=out, where=total > 0)
    return out
