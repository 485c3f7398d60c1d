"""The value of a metric together with the number of things it was taken over."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """A metric's value, and how many samples, tasks or entries it is a share or mean of.

    ``value`` is None exactly when ``n`` is 0: nothing to measure is neither 0 nor NaN.

    >>> Score(0.5, 4)
    Score(value=0.5, n=4)
    >>> Score(None, 0).value is None
    True

    :param value: a finite Python float, or None for an undefined metric.
    :param n: the number of samples, tasks or entries, 0 or more.
    :raises ValueError: the value is NaN or infinite, or is None while n is not 0 (or the reverse).
    """

    value: float | None
    n: int

    def __post_init__(self) -> None:
        if self.n < 0 or (self.value is None) != (self.n == 0):
            raise ValueError(
                f"Score(value={self.value!r}, n={self.n!r}): value must be None exactly when n is 0"
            )
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(
                f"Score value {self.value!r} is not finite: use Score(None, 0) for undefined"
            )


def mean_score(values: list[float]) -> Score:
    """Return mean(values) with n = len(values), or ``Score(None, 0)`` for an empty list.

    >>> mean_score([0.25, 0.75])
    Score(value=0.5, n=2)
    >>> mean_score([])
    Score(value=None, n=0)
    """
    return Score(math.fsum(values) / len(values), len(values)) if values else Score(None, 0)


def share_score(part: int, whole: int) -> Score:
    """Return part / whole with n = whole, or ``Score(None, 0)`` when whole is 0.

    >>> share_score(3, 4)
    Score(value=0.75, n=4)
    >>> share_score(0, 0)
    Score(value=None, n=0)
    """
    return Score(part / whole, whole) if whole else Score(None, 0)
