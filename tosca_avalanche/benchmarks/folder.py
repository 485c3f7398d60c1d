"""A stream from a folder of images, or a tar of one."""

from __future__ import annotations

from collections.abc import Sequence

from avalanche.benchmarks import CLScenario

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.benchmarks.class_incremental import class_incremental
from tosca_avalanche.benchmarks.registry import register_stream
from tosca_avalanche.benchmarks.tree import read_tree


@register_stream("folder")
def folder(
    root: str,
    transforms: Transforms | None = None,
    *,
    classes_per_task: int | Sequence[int] = 10,
    init_classes: int | None = None,
    class_order_seed: int | None = 1993,
    test_share: float = 0.2,
    split_seed: int = 0,
    skip_bad: bool = False,
) -> CLScenario:
    """Return a class-incremental stream from a folder of images.

    Class ids before the permutation follow the sorted folder names, as in the paper; the
    benchmark carries the names (``class_names``, by label). Sizes need not divide: a
    remainder makes a smaller last task.

    :param root: ROOT/{train,test}/CLASS/IMAGE; or ROOT/train/CLASS/IMAGE or
        ROOT/CLASS/IMAGE, which get a seeded split that is written down and used again; or a
        tar file of one of these, unpacked once into the cache folder (``TOSCA_CACHE`` or the
        platform's).
    :param transforms: of the backbone; the paper's by default.
    :param classes_per_task: classes of each task, one number or a list.
    :param init_classes: classes of the first task, where it differs.
    :param class_order_seed: seed of the class order; None for the sorted order.
    :param test_share: share of each class's images that a seeded split takes for testing.
    :param split_seed: its seed.
    :param skip_bad: leave out files that can't be decoded, and say how many.
    :raises StreamError: a missing folder, several that fit, no images, a class without
        training images.
    """
    tree = read_tree(root, test_share=test_share, split_seed=split_seed, skip_bad=skip_bad)
    benchmark = class_incremental(
        tree.images("train"),
        tree.images("test"),
        tree.classes,
        transforms,
        classes_per_task,
        init_classes,
        class_order_seed,
    )
    benchmark.split = tree.split
    return benchmark
