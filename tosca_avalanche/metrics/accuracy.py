"""Accuracies of a stream of tasks, by name, as pure functions of counts.

After each task t = 0 .. T-1 the model is tested on the tasks 0 .. t. All functions read
``correct[t, i]`` and ``total[t, i]``, integer arrays [T, T]: how many test samples of task i
were right, and how many there were, when tested after task t. Entries with i > t are ignored.
R[t, i] = correct[t, i] / total[t, i]. Values are fractions in [0, 1]; what has no samples is
undefined, ``Score(None, 0)``. Bad arrays raise ValueError (see ``checked_counts``).
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from tosca_avalanche.metrics.counts import Counts, checked_counts, checked_task
from tosca_avalanche.metrics.score import Score, mean_score, share_score


def task_accuracy(correct: ArrayLike, total: ArrayLike, t: int, i: int) -> Score:
    """Return R[t, i], the accuracy on task i after task t; n = its test samples.

    >>> task_accuracy([[9, 0], [6, 1]], [[10, 0], [10, 2]], t=1, i=0)
    Score(value=0.6, n=10)

    :raises ValueError: t or i is out of range, or i > t: that task is not learned yet.
    """
    right, tested = checked_counts(correct, total)
    t = checked_task(t, len(right), "t")
    i = checked_task(i, len(right), "i")
    if i > t:
        raise ValueError(f"i = {i} is after t = {t}: after task {t} only tasks 0 to {t} are tested")
    return share_score(int(right[t, i]), int(tested[t, i]))


def accuracy_after(correct: ArrayLike, total: ArrayLike, t: int) -> Score:
    """Return A_t = sum_{i<=t} correct[t, i] / sum_{i<=t} total[t, i]; n = the test samples.

    Every sample weighs the same, so a large task counts for more than a small one.

    >>> accuracy_after([[9, 0], [6, 1]], [[10, 0], [10, 4]], t=1)  # (6 + 1) / (10 + 4)
    Score(value=0.5, n=14)

    :raises ValueError: t is out of range.
    """
    right, tested = checked_counts(correct, total)
    return _accuracy_after(right, tested, checked_task(t, len(right), "t"))


def average_accuracy(correct: ArrayLike, total: ArrayLike) -> Score:
    """Return A-bar, the mean of A_t over t; n = the steps averaged.

    A step without test samples has no A_t and is left out of the mean.

    >>> average_accuracy([[9, 0], [6, 1]], [[10, 0], [10, 4]])  # (0.9 + 0.5) / 2
    Score(value=0.7, n=2)
    """
    right, tested = checked_counts(correct, total)
    steps = (_accuracy_after(right, tested, t).value for t in range(len(right)))
    return mean_score([value for value in steps if value is not None])


def last_accuracy(correct: ArrayLike, total: ArrayLike) -> Score:
    """Return A_last = A_t at t = T-1; n = the test samples.

    >>> last_accuracy([[9, 0], [6, 1]], [[10, 0], [10, 4]])
    Score(value=0.5, n=14)
    """
    right, tested = checked_counts(correct, total)
    return _accuracy_after(right, tested, len(right) - 1)


def average_task_accuracy(correct: ArrayLike, total: ArrayLike) -> Score:
    """Return the mean over t of R[t, t], the accuracy on a task right after it; n = the tasks.

    This is plasticity: each task weighs the same, whatever its size. A task without test
    samples is left out of the mean.

    >>> average_task_accuracy([[9, 0], [6, 2]], [[10, 0], [10, 4]])  # (0.9 + 0.5) / 2
    Score(value=0.7, n=2)
    """
    right, tested = checked_counts(correct, total)
    pairs = zip(right.diagonal().tolist(), tested.diagonal().tolist(), strict=True)
    return mean_score([part / whole for part, whole in pairs if whole])


def _accuracy_after(right: Counts, tested: Counts, t: int) -> Score:
    return share_score(int(right[t, : t + 1].sum()), int(tested[t, : t + 1].sum()))
