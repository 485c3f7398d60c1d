"""How much of the earlier tasks is lost: two forms of forgetting and backward transfer.

Arrays, R[t, i] and errors as in ``tosca_avalanche.metrics.accuracy``. Values are differences of
fractions, in [-1, 1]. n = the tasks averaged. Every earlier task weighs the same, also one of a
single class or sample; a task without test samples is left out of the mean. After the first
task (t = 0) there is no earlier task: ``Score(None, 0)``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tosca_avalanche.metrics.counts import checked_counts, checked_task, rates
from tosca_avalanche.metrics.score import Score, mean_score


def forgetting_max(correct: ArrayLike, total: ArrayLike, t: int | None = None) -> Score:
    """Return the mean over tasks i < t of max_{i<=s<=t} R[s, i] - R[t, i]; never negative.

    Steps s where task i had no test samples are left out of its maximum; a task tested at t
    alone, at no earlier step, is left out of the mean: it has nothing to compare with.

    >>> correct = [[8, 0, 0], [9, 5, 0], [6, 5, 1]]
    >>> total = [[10, 0, 0], [10, 10, 0], [10, 10, 2]]
    >>> score = forgetting_max(correct, total)  # ((0.9 - 0.6) + (0.5 - 0.5)) / 2
    >>> round(score.value, 6), score.n
    (0.15, 2)

    :param t: after which task; None means the last.
    :raises ValueError: t is out of range.
    """
    accuracy, t = _rates_until(correct, total, t)
    # fmax skips NaN; row t is left out here, as a maximum of row t alone would read as 0 forgetting
    best_before = np.fmax.reduce(accuracy[:t], axis=0, initial=np.nan)[:t]
    now = accuracy[t, :t]
    return _mean_defined(np.maximum(best_before, now) - now)


def forgetting_after_learning(correct: ArrayLike, total: ArrayLike, t: int | None = None) -> Score:
    """Return the mean over tasks i < t of R[i, i] - R[t, i]; negative when tasks improved.

    >>> correct = [[8, 0, 0], [9, 5, 0], [6, 5, 1]]
    >>> total = [[10, 0, 0], [10, 10, 0], [10, 10, 2]]
    >>> score = forgetting_after_learning(correct, total)  # ((0.8 - 0.6) + (0.5 - 0.5)) / 2
    >>> round(score.value, 6), score.n
    (0.1, 2)

    :param t: after which task; None means the last.
    :raises ValueError: t is out of range.
    """
    accuracy, t = _rates_until(correct, total, t)
    return _mean_defined(accuracy.diagonal()[:t] - accuracy[t, :t])


def backward_transfer(correct: ArrayLike, total: ArrayLike, t: int | None = None) -> Score:
    """Return BWT, the mean over tasks i < t of R[t, i] - R[i, i].

    It is ``forgetting_after_learning`` with the sign turned.

    >>> correct = [[8, 0, 0], [9, 5, 0], [6, 5, 1]]
    >>> total = [[10, 0, 0], [10, 10, 0], [10, 10, 2]]
    >>> score = backward_transfer(correct, total)
    >>> round(score.value, 6), score.n
    (-0.1, 2)

    :param t: after which task; None means the last.
    :raises ValueError: t is out of range.
    """
    accuracy, t = _rates_until(correct, total, t)
    return _mean_defined(accuracy[t, :t] - accuracy.diagonal()[:t])


def _rates_until(
    correct: ArrayLike, total: ArrayLike, t: int | None
) -> tuple[NDArray[np.float64], int]:
    right, tested = checked_counts(correct, total)
    last = len(right) - 1 if t is None else checked_task(t, len(right), "t")
    return rates(right, tested), last


def _mean_defined(differences: NDArray[np.float64]) -> Score:
    return mean_score(differences[~np.isnan(differences)].tolist())
