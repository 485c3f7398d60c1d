"""What both families of Avalanche experiences can be asked."""

from __future__ import annotations

from typing import Any


def classes_of(experience: Any) -> list[int]:
    """Return the class labels of an experience's data, in increasing order.

    Read from the data's targets, since ``classes_in_this_experience`` is missing in some
    benchmarks and a plain promise in the others.
    """
    targets = getattr(experience.dataset, "targets", None)
    if targets is not None:
        return sorted(int(c) for c in getattr(targets, "uniques", set(targets)))
    named = getattr(experience, "classes_in_this_experience", None)
    if named is not None:
        return sorted(int(c) for c in named)
    raise ValueError(
        "the experience's data set has no targets: build it with avalanche's "
        "as_classification_dataset, or give the experience classes_in_this_experience"
    )
