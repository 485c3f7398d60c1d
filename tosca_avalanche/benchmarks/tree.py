"""Image folders in the layouts that people have, read into lists of files."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path

from tosca_avalanche.benchmarks.archive import opened
from tosca_avalanche.benchmarks.class_incremental import LabelledImages
from tosca_avalanche.benchmarks.images import bad_images, class_folders, image_files, read_image
from tosca_avalanche.benchmarks.split import SEED, SHARE, seeded_split
from tosca_avalanche.errors import StreamError

LAYOUT = (
    "expected ROOT/train/CLASS/IMAGE and ROOT/test/CLASS/IMAGE, or without test images "
    "ROOT/train/CLASS/IMAGE or ROOT/CLASS/IMAGE, or a tar of one of these"
)


@dataclass
class ImageTree:
    """Files of a stream, by side and class.

    :param classes: names, in the order of the class indices.
    :param train: files of each class; likewise ``test``.
    :param split: file that holds a seeded split, where the folder had none of its own.
    :param skipped: files left out because they can't be decoded.
    """

    classes: list[str]
    train: dict[str, list[Path]]
    test: dict[str, list[Path]]
    split: Path | None = None
    skipped: list[Path] = field(default_factory=list)

    def images(self, side: str) -> LabelledImages:
        """Return one side, "train" or "test", class after class."""
        files: dict[str, list[Path]] = getattr(self, side)
        paths = [p for name in self.classes for p in files.get(name, [])]
        targets = [i for i, name in enumerate(self.classes) for _ in files.get(name, [])]
        return LabelledImages(paths, targets, read_image)

    def count(self, side: str) -> int:
        """Return the number of images of one side."""
        return sum(len(own) for own in getattr(self, side).values())


def read_tree(
    root: str | Path,
    *,
    layout: str = LAYOUT,
    test_share: float = SHARE,
    split_seed: int = SEED,
    skip_bad: bool = False,
    may_split: bool = True,
) -> ImageTree:
    """Read a folder of images, or a tar of one.

    Class indices follow the sorted folder names. Hidden files and folders, and files that
    are no images, are ignored. A folder without test images gets a seeded split, written
    down and used again (:func:`seeded_split`).

    :param skip_bad: decode every file once, now, and leave out those that can't be; their
        number and the first path are said. Otherwise such a file is an error when it is read.
    :param may_split: False refuses a folder without test images.
    :raises StreamError: no folder, no images, a class without training images.
    """
    try:
        top = opened(root)
    except StreamError as error:
        raise StreamError(f"{error}; {layout}") from error
    sides = _sides(top)
    if sides is None:
        found = ", ".join(sorted(p.name for p in top.iterdir())[:8]) or "nothing"
        raise StreamError(f"{root} holds {found}; {layout}")
    base, train_folder, test_folder = sides
    if test_folder is None and not may_split:
        raise StreamError(
            f"{root} has no test images, and a split of its own is published; {layout}"
        )
    train = {p.name: image_files(p) for p in class_folders(train_folder)}
    test = None
    if test_folder is not None:
        test = {p.name: image_files(p) for p in class_folders(test_folder)}
    skipped: list[Path] = []
    if skip_bad:
        skipped = bad_images([p for s in (train, test or {}) for own in s.values() for p in own])
        left_out = set(skipped)
        train, test = (
            None
            if s is None
            else {k: [p for p in own if p not in left_out] for k, own in s.items()}
            for s in (train, test)
        )  # type: ignore[assignment]
        if skipped:
            warnings.warn(
                f"{len(skipped)} files of {root} can't be decoded and are left out, the first is "
                f"{skipped[0]}",
                stacklevel=3,
            )
    place = None
    if test is None:
        train, test, place = seeded_split(base, train, test_share, split_seed)
    return checked(ImageTree(sorted({*train, *test}), train, test, place, skipped), layout)


def checked(tree: ImageTree, layout: str) -> ImageTree:
    """Return the tree; a class without training images is an error, one without test is said."""
    if not tree.classes:
        raise StreamError(f"there are no class folders; {layout}")
    without = [name for name in tree.classes if not tree.train.get(name)]
    if without:
        where = "only test images" if tree.test.get(without[0]) else "no images"
        raise StreamError(
            f"class {without[0]!r} has {where} ({len(without)} of {len(tree.classes)} classes have "
            f"no training images); {layout}"
        )
    untested = [name for name in tree.classes if not tree.test.get(name)]
    if untested:
        warnings.warn(
            f"{len(untested)} of {len(tree.classes)} classes have no test images, the first is "
            f"{untested[0]!r}: nothing is measured on them",
            stacklevel=4,
        )
    return tree


def _sides(top: Path) -> tuple[Path, Path, Path | None] | None:
    """Return (base, train folder, test folder or None) of ``top``, or of a folder inside it."""
    inner = class_folders(top)
    for base in (top, *inner):
        if (base / "train").is_dir() and (base / "test").is_dir():
            return base, base / "train", base / "test"
    for base in (top, *inner):
        if (base / "train").is_dir() and class_folders(base / "train"):
            return base, base / "train", None
    if (top / "test").is_dir():
        return None  # test images alone are nothing to learn from
    for base in (top, *inner):
        if any(image_files(p) for p in class_folders(base)):
            return base, base, None
    return None
