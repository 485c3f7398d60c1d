"""Domain streams: the same classes again and again, in another style each time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from avalanche.benchmarks import CLScenario, benchmark_from_datasets, with_classes_timeline

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.benchmarks.archive import opened
from tosca_avalanche.benchmarks.class_incremental import LabelledImages, with_transforms
from tosca_avalanche.benchmarks.registry import register_stream
from tosca_avalanche.benchmarks.tree import found_in, only
from tosca_avalanche.errors import StreamError
from tosca_avalanche.images import class_folders, image_files, read_image

LAYOUT = "expected ROOT/DOMAIN/train/CLASS/IMAGE and ROOT/DOMAIN/test/CLASS/IMAGE, or a tar of that"


@register_stream("domains")
def domains(
    root: str,
    transforms: Transforms | None = None,
    *,
    order: Sequence[str] | None = None,
    domain_order_seed: int | None = None,
) -> CLScenario:
    """Return a stream with one task per domain; a class has one label in all of them.

    A method meets classes that it knows already: those with one row per (task, class)
    answer with the largest, statistics are updated. Results per domain are those per task;
    the benchmark carries ``task_names``.

    :param root: ROOT/DOMAIN/{train,test}/CLASS/IMAGE, or a tar of that.
    :param transforms: of the backbone; the paper's by default.
    :param order: the domains in their order, some or all; sorted by name by default.
    :param domain_order_seed: shuffle them instead.
    :raises StreamError: no such folder, an unknown domain, a domain without training images.
    """
    top = domain_root(root)
    present = [p.name for p in class_folders(top) if (p / "train").is_dir()]
    other = [p.name for p in class_folders(top) if p.name not in present]
    if other:
        warnings.warn(f"{top / other[0]} has no folder train and is no domain", stacklevel=2)
    names = list(order) if order is not None else present
    unknown = [n for n in names if n not in present]
    if unknown or len(set(names)) < len(names):
        raise StreamError(f"order={names}: {root} has the domains {present}, each goes in once")
    if domain_order_seed is not None:
        shuffled = np.random.RandomState(domain_order_seed).permutation(len(names))
        names = [names[i] for i in shuffled]
    classes = sorted(
        {p.name for n in names for s in ("train", "test") for p in class_folders(top / n / s)}
    )
    streams: dict[str, list] = {"train": [], "test": []}
    for name in names:
        for side, experiences in streams.items():
            paths, targets = [], []
            for target, label in enumerate(classes):
                files = image_files(top / name / side / label)
                paths += files
                targets += [target] * len(files)
            if not paths:
                what = {"train": "training", "test": "test"}[side]
                raise StreamError(f"domain {name!r} has no {what} images; {LAYOUT}")
            data = LabelledImages(paths, targets, read_image)
            experiences.append(with_transforms(data, transforms, evaluation=side == "test"))
    for name, train, test in zip(names, streams["train"], streams["test"], strict=True):
        _say_one_sided(name, set(train.targets), set(test.targets), classes)
    benchmark = with_classes_timeline(benchmark_from_datasets(**streams))
    benchmark.class_order = list(range(len(classes)))
    benchmark.class_names = classes
    benchmark.task_names = names
    benchmark.task_sizes = [len(set(e.dataset.targets)) for e in benchmark.train_stream]
    return benchmark


def _say_one_sided(domain: str, train: set[int], test: set[int], classes: list[str]) -> None:
    for here, there, what in ((test, train, "training"), (train, test, "test")):
        missing = sorted(here - there)
        if missing:
            warnings.warn(
                f"domain {domain!r}: class {classes[missing[0]]!r} has no {what} images "
                f"({len(missing)} classes have none)",
                stacklevel=3,
            )


def domain_root(root: str | Path) -> Path:
    """Return the folder whose folders are domains: ``root``, or its only folder."""
    try:
        top = opened(root)
    except StreamError as error:
        raise StreamError(f"{error}; {LAYOUT}") from error

    def fits(folder: Path) -> bool:
        return any((p / "train").is_dir() for p in class_folders(folder))

    base = top if fits(top) else only([p for p in class_folders(top) if fits(p)], top, LAYOUT)
    if base is None:
        raise StreamError(f"{root} holds {found_in(top)}; {LAYOUT}")
    return base
