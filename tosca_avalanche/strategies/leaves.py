"""From an Avalanche data set to what lies at its bottom: leaf, positions, image transforms."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from avalanche.benchmarks.utils.data import AvalancheDataset, _FlatDataWithTransform
from avalanche.benchmarks.utils.flat_data import FlatData
from avalanche.benchmarks.utils.transforms import MultiParamTransform, TupleTransform
from torch.utils.data import ConcatDataset, Subset

ImageTransform = Callable[[Any], Any]


class Leaf(NamedTuple):
    """A data set read as ``transform(leaf[i][0]) for i in indices``."""

    dataset: Any
    indices: list[int]
    steps: list[ImageTransform]


def single_leaf(dataset: Any) -> Leaf | None:
    """Return the leaf of a data set; None where it has several, or steps that see the label.

    Avalanche's own traversal reads each level's own transform group; its items are made
    with the outermost level's group at all levels, and so this function reads it.
    """
    return _walk(dataset, list(range(len(dataset))), None)


def _walk(dataset: Any, indices: list[int], group: str | None) -> Leaf | None:
    if isinstance(dataset, AvalancheDataset):
        return _walk(dataset._flat_data, indices, None)
    if isinstance(dataset, Subset):
        return _walk(dataset.dataset, [int(dataset.indices[i]) for i in indices], None)
    if isinstance(dataset, ConcatDataset):
        return _joined(dataset.datasets, indices, None)
    if not isinstance(dataset, FlatData):
        return Leaf(dataset, indices, [])
    if dataset._indices is not None:
        indices = [int(dataset._indices[i]) for i in indices]
    if not isinstance(dataset, _FlatDataWithTransform):
        return _joined(dataset._datasets, indices, None)
    group = group or dataset._transform_groups.current_group
    inner = _joined(dataset._datasets, indices, group)
    own = [dataset._frozen_transform_groups, dataset._transform_groups]
    if inner is None:
        return None
    steps = list(inner.steps)
    for groups in own:
        step = None if groups is None else groups.transform_groups.get(group)
        image_step = _image_part(step)
        if image_step is not None:
            steps.append(image_step)
        elif not _leaves_images(step):
            return None
    return Leaf(inner.dataset, inner.indices, steps)


def _joined(parts: Sequence[Any], indices: list[int], group: str | None) -> Leaf | None:
    """Read positions of several data sets in a row, where all have one leaf and the same steps."""
    starts = [0, *itertools.accumulate(len(part) for part in parts)]
    where = [bisect.bisect_right(starts, i) - 1 for i in indices]
    found: dict[int, Leaf] = {}
    for number in sorted(set(where)):
        mine = [i - starts[number] for i, w in zip(indices, where, strict=True) if w == number]
        leaf = _walk(parts[number], mine, group)
        if leaf is None:
            return None
        found[number] = leaf
    if not found:
        return None
    first = next(iter(found.values()))
    for leaf in found.values():
        same_steps = [id(s) for s in leaf.steps] == [id(s) for s in first.steps]
        if leaf.dataset is not first.dataset or not same_steps:
            return None
    taken = {number: iter(leaf.indices) for number, leaf in found.items()}
    return Leaf(first.dataset, [next(taken[w]) for w in where], first.steps)


def _image_part(step: Any) -> ImageTransform | None:
    """Return what a step does to the image, where it looks at the image alone."""
    if isinstance(step, TupleTransform):
        return _image_part(step.transforms[0]) if step.transforms else None
    if isinstance(step, MultiParamTransform):
        return step if getattr(step, "max_params", None) == 1 else None  # type: ignore[return-value]
    return step


def _leaves_images(step: Any) -> bool:
    """Tell whether a step without an image part does nothing to images."""
    if isinstance(step, TupleTransform):
        return not step.transforms or _leaves_images(step.transforms[0])
    return step is None
