"""From an Avalanche data set to its stored features, where that is safe."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from tosca_avalanche.backbones import FrozenBackbone
from tosca_avalanche.benchmarks.class_incremental import LabelledImages
from tosca_avalanche.benchmarks.experience import label_number
from tosca_avalanche.features import (
    FeatureData,
    FeatureStore,
    SeededViews,
    image_key,
    source_key,
    stored_features,
    transform_key,
)
from tosca_avalanche.seeding import seeded_globals
from tosca_avalanche.strategies.leaves import single_leaf

VIEW_SEED = 0
T = TypeVar("T")


@dataclass
class _Plan:
    """How to key a data set: a key per image and one for the transform."""

    keys: list[bytes]
    transform: str
    random: bool


class _Known:
    """What was found out about objects, for as long as they live elsewhere: none is held here."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], tuple[list[weakref.ref[Any]], Any]] = {}

    def get(self, things: Sequence[Any], what: str, find: Callable[[], T]) -> T:
        """Return what is known about some objects together; find it where nothing is."""
        key = (*map(id, things), what)
        refs, value = self._kept.get(key, (None, None))
        # what had these ids may be gone, and others have them now
        if refs is None or any(r() is not t for r, t in zip(refs, things, strict=True)):
            kept = self._kept.items()
            self._kept = {k: v for k, v in kept if all(r() is not None for r in v[0])}
            value = find()
            try:
                self._kept[key] = [weakref.ref(t) for t in things], value
            except TypeError:
                self._kept.pop(key, None)  # a list's end can't be seen: nothing is remembered
        return value  # type: ignore[no-any-return]


class FeatureCache:
    """Features of Avalanche data sets through a store.

    An image's key is the content of what lies at the bottom of the data set (the file, or
    the stored pixels) together with what the transforms do to probe images. Both readings
    are checked against the data set's own items; where they don't hold (several data sets
    with different transforms, transforms that look at the label, ...) the key is the
    content of the transformed image instead, which is always right and only slower.

    :param store: where features go.
    """

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self._known = _Known()
        self._said: set[str] = set()

    def get(
        self,
        backbone: FrozenBackbone | Sequence[FrozenBackbone],
        dataset: Any,
        *,
        view: int | None = None,
        batch_size: int = 64,
        num_workers: int = 0,
    ) -> FeatureData | None:
        """Return the features of a data set; None, and once a warning, where that isn't safe.

        :param backbone: one, or several whose features are put side by side.
        :param view: None for a deterministic transform; v for the v-th random view of each
            image, seeded by the image's content and v alone.
        """
        backbones = [backbone] if isinstance(backbone, FrozenBackbone) else list(backbone)
        if not len(dataset) or not backbones:
            return None
        ends = _ends(dataset)
        for one in backbones:
            one.probe(ends[0][0])
        labels = self._labels(dataset, ends)
        plan = self._plan(dataset, ends, random=view is not None)
        if labels is None or plan is None:
            return None
        if plan.random and view is None:
            return self._refuse(
                "the evaluation transform of this benchmark is random: features are not cached, "
                "every image passes through the backbone each time"
            )
        source = dataset
        if view is not None:
            seeds = [int.from_bytes(key[:7], "big") for key in plan.keys]
            source = SeededViews(dataset, VIEW_SEED, view, seeds)
        parts = []
        for one in backbones:
            space = self.store.space(
                backbone=one.name,
                fingerprint=one.fingerprint,
                transform=plan.transform,
                view="eval" if view is None else f"view-{view}",
                dim=one.embed_dim,
            )
            parts.append(
                stored_features(
                    one, source, plan.keys, space, batch_size=batch_size, num_workers=num_workers
                )
            )
        return FeatureData(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1), *labels)

    def _labels(self, dataset: Any, ends: dict[int, Any]) -> tuple[Tensor, Tensor | None] | None:
        """Return targets and task labels as the items have them, without reading the images."""
        first = ends[0]
        y = getattr(dataset, "targets", None)
        t = getattr(dataset, "targets_task_labels", None) if len(first) == 3 else None
        if y is None or len(first) not in (2, 3) or (len(first) == 3 and t is None):
            return self._refuse("items with other fields than image, label and task are not cached")
        targets = torch.as_tensor(np.asarray([label_number(v) for v in y]))
        tasks = None if t is None else torch.as_tensor(np.asarray([int(v) for v in t]))
        for i, item in ends.items():
            if label_number(item[1]) != int(targets[i]):
                return self._refuse("labels are changed by a transform: features are not cached")
        return targets, tasks

    def _plan(self, dataset: Any, ends: dict[int, Any], random: bool) -> _Plan | None:
        fast = self._by_source(dataset, ends)
        if fast is not None:
            return fast
        if random:
            return self._refuse("random views of this data set can't be keyed: they are not cached")
        keys = [image_key(dataset[i][0]) for i in range(len(dataset))]
        again = range(0, len(dataset), max(1, len(dataset) // 8))
        return _Plan(keys, "input", any(image_key(dataset[i][0]) != keys[i] for i in again))

    def _by_source(self, dataset: Any, ends: dict[int, Any]) -> _Plan | None:
        """Key by the bottom of the data set, if its first and last items prove that reading."""
        flat = single_leaf(dataset)
        if flat is None:
            return None
        leaf, indices, steps = flat

        def transform(image: Any) -> Any:
            for step in steps:
                image = step(image)
            return image

        try:
            first = leaf[indices[0]][0]
            if image_key(first) != image_key(leaf[indices[0]][0]):
                return None  # the leaf itself is random
            key, random = self._transform_key(steps, transform, first)
            for i, item in ends.items():
                with seeded_globals(0):
                    expected = transform(leaf[indices[i]][0])
                if image_key(item[0]) != image_key(expected):
                    return None
            return _Plan(self._keys_of(leaf, indices), key, random)
        except (TypeError, ValueError, AttributeError, IndexError, RuntimeError):
            return None

    def _transform_key(self, steps: list[Any], transform: Any, first: Any) -> tuple[str, bool]:
        """Probe a chain of transforms once for each kind of image."""
        kind = getattr(first, "mode", None), getattr(first, "size", None)
        if isinstance(first, (np.ndarray, Tensor)):
            kind = str(first.dtype), tuple(first.shape)
        return self._known.get(steps, str(kind), lambda: transform_key(transform, first))

    def _keys_of(self, leaf: Any, indices: list[int]) -> list[bytes]:
        """Return the content keys of a leaf's items; each is read once while the leaf lives."""
        known: dict[int, bytes] = self._known.get([leaf], "items", dict)
        for i in indices:
            if i not in known:
                known[i] = _source_key(leaf, i)
        return [known[i] for i in indices]

    def _refuse(self, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            warnings.warn(why, stacklevel=4)

    def __getstate__(self) -> dict[str, Any]:
        return {"store": self.store, "_known": _Known(), "_said": set()}


def _source_key(leaf: Any, i: int) -> bytes:
    """Return the key of an item's file or pixels, together with the function that decodes them."""
    if isinstance(leaf, LabelledImages):
        key = source_key(leaf.sources[i], leaf.load)
        if key is not None:
            return key
    return image_key(leaf[i][0])


def _ends(dataset: Any) -> dict[int, Any]:
    """Return the first and the last item by position, made under a fixed seed."""
    ends = {}
    for i in (0, len(dataset) - 1):
        if i not in ends:
            with seeded_globals(0):
                ends[i] = dataset[i]
    return ends
