"""What both families of Avalanche experiences can be asked."""

from __future__ import annotations

from typing import Any

from tosca_avalanche.errors import InputError


def whole_stream(experience: Any) -> list[Any]:
    """Return all experiences of the stream that one comes from; it alone where it has none.

    A slice of a classic stream (``train_stream[2:]``) calls itself its experiences' stream:
    the benchmark knows the whole.
    """
    stream = getattr(experience, "origin_stream", None)
    if stream is None:
        return [experience]
    named = getattr(getattr(stream, "benchmark", None), "streams", {})
    return list(named.get(getattr(stream, "name", None), stream))


def label_number(label: Any) -> int:
    """Return a class label as the whole number that it is.

    :raises InputError: it is a name, a fraction or the like; nothing is rounded or read.
    """
    try:
        number = int(label)
        if number == label:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(
        f"the class label {label!r} is no whole number; map the labels to 0..C-1 before the "
        f"benchmark is built, with {{c: i for i, c in enumerate(sorted(set(labels)))}}, or use "
        f"ToscaClassifier, which takes names"
    )


def classes_of(experience: Any) -> list[int]:
    """Return the class labels of an experience's data, in increasing order.

    Read from the data's targets, since ``classes_in_this_experience`` is missing in some
    benchmarks and a plain promise in the others.

    :raises InputError: a label that is no whole number.
    """
    targets = getattr(experience.dataset, "targets", None)
    if targets is not None:
        return sorted(label_number(c) for c in getattr(targets, "uniques", set(targets)))
    named = getattr(experience, "classes_in_this_experience", None)
    if named is not None:
        return sorted(label_number(c) for c in named)
    raise ValueError(
        "the experience's data set has no targets: build it with avalanche's "
        "as_classification_dataset, or give the experience classes_in_this_experience"
    )
