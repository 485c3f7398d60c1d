"""From labelled images to a class-incremental Avalanche benchmark, in the paper's protocol."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from avalanche.benchmarks import CLScenario, benchmark_from_datasets, with_classes_timeline
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.benchmarks.utils.transform_groups import TransformGroups
from torch.utils.data import Dataset

from tosca_avalanche.backbones.transforms import Transforms, paper_preset
from tosca_avalanche.benchmarks.experience import label_number
from tosca_avalanche.errors import StreamError


class LabelledImages(Dataset):
    """Images with integer targets; ``load(source)`` gives the image of one source.

    :param sources: anything per image: an array, a path.
    :param targets: class index per image.
    :param load: source -> PIL image or array; called each time an item is read.
    :raises InputError: a target that is no whole number.
    """

    def __init__(
        self, sources: Sequence[Any], targets: Sequence[int], load: Callable[[Any], Any]
    ) -> None:
        if len(sources) != len(targets):
            raise StreamError(f"{len(sources)} images but {len(targets)} targets")
        self.sources, self.targets, self.load = sources, [label_number(t) for t in targets], load

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.load(self.sources[index]), self.targets[index]


def as_is(image: Any) -> Any:
    """Return the image: the ``load`` of sources that are images already."""
    return image


def class_order(n_classes: int, seed: int | None) -> list[int]:
    """Return the paper's class order: RandomState(seed).permutation(C); sorted for None.

    >>> class_order(3, None)
    [0, 1, 2]
    >>> class_order(10, 1993)[:4]
    [4, 2, 7, 6]
    """
    if seed is None:
        return list(range(n_classes))
    return [int(c) for c in np.random.RandomState(seed).permutation(n_classes)]


def task_sizes(
    n_classes: int, classes_per_task: int | Sequence[int], init_classes: int | None = None
) -> list[int]:
    """Return the number of classes of each task; a remainder makes a smaller last task.

    :param classes_per_task: classes of every task (B0-IncK), or a list of all sizes.
    :param init_classes: classes of the first task, where it differs.

    >>> task_sizes(100, 30, init_classes=10)
    [10, 30, 30, 30]
    >>> task_sizes(10, 4)
    [4, 4, 2]
    """
    if isinstance(classes_per_task, int):
        first = classes_per_task if init_classes is None else init_classes
        if not 1 <= classes_per_task <= n_classes or not 1 <= first <= n_classes:
            raise StreamError(
                f"tasks of {first} and {classes_per_task} classes can't be cut from {n_classes} "
                f"classes; choose sizes from 1 to {n_classes}"
            )
        sizes = [first]
        while sum(sizes) < n_classes:
            sizes.append(min(classes_per_task, n_classes - sum(sizes)))
        return sizes
    sizes = [int(s) for s in classes_per_task]
    if init_classes is not None:
        raise StreamError("init_classes goes with one number in classes_per_task, not with a list")
    if min(sizes, default=0) < 1 or sum(sizes) != n_classes:
        raise StreamError(
            f"classes_per_task={sizes} must be positive and add up to {n_classes} classes, "
            f"it adds up to {sum(sizes)}"
        )
    return sizes


def with_transforms(data: LabelledImages, transforms: Transforms | None, evaluation: bool) -> Any:
    """Return an Avalanche data set with transform groups "train" and "eval".

    :param transforms: the paper's by default.
    :param evaluation: give images by the evaluation transform.
    """
    transforms = paper_preset() if transforms is None else transforms
    groups = TransformGroups({"train": (transforms.train, None), "eval": (transforms.eval, None)})
    whole = as_classification_dataset(data, groups)
    return whole.eval() if evaluation else whole


def class_incremental(
    train: LabelledImages,
    test: LabelledImages,
    class_names: Sequence[str],
    transforms: Transforms | None,
    classes_per_task: int | Sequence[int],
    init_classes: int | None = None,
    class_order_seed: int | None = None,
) -> CLScenario:
    """Return an Avalanche benchmark with streams "train" and "test", one experience a task.

    Labels are mapped so that the first class of the order is 0, as in the paper. The
    benchmark carries ``class_names`` (by new label), ``class_order`` (new label -> old
    index) and ``task_sizes``. Made by Avalanche's ``benchmark_from_datasets``: sizes need
    not divide, and no class is dropped.

    :raises StreamError: a class without training images, or bad sizes.
    """
    n_classes = len(class_names)
    order = class_order(n_classes, class_order_seed)
    new_label = {old: new for new, old in enumerate(order)}
    sizes = task_sizes(n_classes, classes_per_task, init_classes)
    without = sorted(set(range(n_classes)) - set(train.targets))
    if without:
        raise StreamError(f"class {class_names[without[0]]!r} has no training images")
    starts = np.cumsum([0, *sizes])
    streams = {}
    for name, data in (("train", train), ("test", test)):
        targets = [new_label[t] for t in data.targets]
        whole = with_transforms(
            LabelledImages(data.sources, targets, data.load), transforms, evaluation=name == "test"
        )
        array = np.asarray(targets)
        streams[name] = [
            whole.subset(np.flatnonzero((array >= a) & (array < b)).tolist())
            for a, b in itertools.pairwise(starts)
        ]
    benchmark = with_classes_timeline(benchmark_from_datasets(**streams))
    benchmark.class_order = order
    benchmark.class_names = [class_names[old] for old in order]
    benchmark.task_sizes = sizes
    return benchmark
