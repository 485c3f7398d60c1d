"""Labels as people give them, and the numbers that a net knows them by."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from tosca_avalanche.errors import InputError
from tosca_avalanche.uncertainty import UNKNOWN

Label = str | int


class Labels:
    """The user's labels, all str or all int, and the net's number of each.

    New labels get the next numbers, those of one task in sorted order: labels 0, 1, ...
    that come in order are their own numbers.

    :param by_number: label of each number of the net.
    :param names: what to call a label in tables, where it isn't the label itself.
    """

    def __init__(
        self, by_number: Mapping[int, Label] | None = None, names: Mapping[Label, str] | None = None
    ) -> None:
        self.by_number = dict(by_number or {})
        self.names = dict(names or {})

    def name(self, label: Label) -> str:
        """Return what to call a label."""
        return self.names.get(label, str(label))

    def plus(self, labels: Sequence[Label], names: Any = None) -> Labels:
        """Return these labels and new ones.

        :param names: names by label, or a list in the sorted order of the labels given.
        :raises InputError: labels of another type than those before, or names that don't fit.
        """
        given = sorted(set(labels))
        for old in list(self.by_number.values())[:1]:
            if type(old) is not type(given[0]):
                raise InputError(
                    f"labels were {type(old).__name__} so far, such as {old!r}, and now "
                    f"{given[0]!r} came; use one type"
                )
        known, start = set(self.by_number.values()), max(self.by_number, default=-1) + 1
        fresh = [label for label in given if label not in known]
        return Labels(
            {**self.by_number, **{start + i: label for i, label in enumerate(fresh)}},
            {**self.names, **_names(given, names)},
        )

    def numbers(self, labels: Sequence[Label]) -> list[int]:
        """Return the number of each label."""
        number = {label: i for i, label in self.by_number.items()}
        return [number[label] for label in labels]

    def labels(self, ids: Sequence[int]) -> np.ndarray:
        """Return the label of each number: int64, or str; "unknown" or -1 for ``UNKNOWN``.

        :raises InputError: a class that is called "unknown" or -1, where an answer is unknown.
        """
        if not len(ids):
            return np.array([], dtype=np.int64)
        unknown = "unknown" if isinstance(next(iter(self.by_number.values())), str) else UNKNOWN
        if UNKNOWN in ids and unknown in self.by_number.values():
            raise InputError(f"a class is called {unknown!r}, which says that no class fits")
        return np.array([self.by_number.get(int(i), unknown) for i in ids])

    def only(self, ids: Sequence[int]) -> Labels:
        """Return the labels of these numbers alone."""
        kept = {i: self.by_number[i] for i in ids}
        return Labels(kept, {k: v for k, v in self.names.items() if k in set(kept.values())})


def _names(given: list[Any], names: Any) -> dict[Label, str]:
    if names is None:
        return {}
    if not isinstance(names, Mapping):
        if isinstance(names, str) or len(names) != len(given):
            raise InputError(
                f"{len(given)} classes {given[:5]} but names={names!r}; give one name a class, in "
                f"the sorted order of the labels, or names by label"
            )
        names = dict(zip(given, names, strict=True))
    unknown = [label for label in names if label not in given]
    if unknown:
        raise InputError(f"names: {unknown[0]!r} is no label of this task; it has {given[:10]}")
    return {label: str(name) for label, name in names.items()}


def plain_labels(y: Any) -> list[Label]:
    """Return labels as plain str or int, all of one type.

    :raises InputError: another type, or both.
    """
    if isinstance(y, (str, numbers.Integral)):
        y = [y]
    values = y.tolist() if isinstance(y, (np.ndarray, Tensor)) else list(y)
    out: list[Label] = []
    for i, value in enumerate(values):
        if isinstance(value, (Tensor, np.generic)):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise InputError(
                f"label {i} is {value!r} of type {type(value).__name__}; labels are str or int"
            )
        if out and type(value) is not type(out[0]):
            raise InputError(
                f"labels are all str or all int; label 0 is {out[0]!r} and label {i} is {value!r}"
            )
        out.append(value)
    return out
