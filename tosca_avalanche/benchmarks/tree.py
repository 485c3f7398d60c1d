"""Image folders in the layouts that people have, read into lists of files."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tosca_avalanche.benchmarks.archive import opened
from tosca_avalanche.benchmarks.class_incremental import LabelledImages
from tosca_avalanche.benchmarks.split import SEED, SHARE, seeded_split
from tosca_avalanche.errors import StreamError
from tosca_avalanche.images import bad_images, class_folders, image_files, read_image

LAYOUT = (
    "expected ROOT/train/CLASS/IMAGE and ROOT/test/CLASS/IMAGE, or without test images "
    "ROOT/train/CLASS/IMAGE or ROOT/CLASS/IMAGE, or a tar of one of these"
)


@dataclass
class ImageTree:
    """Files of a stream, by side and class.

    :param classes: names, in the order of the class indices.
    :param train: files of each class; likewise ``test``.
    :param split: where the two sides come from: "folders", "official", or the file that
        holds a seeded split.
    """

    classes: list[str]
    train: dict[str, list[Path]]
    test: dict[str, list[Path]]
    split: str = "folders"

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
    split: str = "any",
    accept: Callable[[list[str]], None] = lambda classes: None,
) -> ImageTree:
    """Read a folder of images, or a tar of one.

    Class indices follow the sorted folder names. Hidden files and folders, and files that
    are no images, are ignored. A folder without test images gets a seeded split, written
    down and used again (:func:`seeded_split`), after all else was found right.

    :param skip_bad: decode every file once, now, and leave out those that can't be; their
        number and the first path are said. Otherwise such a file is an error when it is read.
    :param split: which folders may be split: "any" without test images, "one-folder" of
        classes alone, or "never".
    :param accept: called with the class names; raises where they are not those wanted.
    :raises StreamError: no folder, several that fit, no images, a class without training
        images.
    """
    try:
        top = opened(root)
    except StreamError as error:
        raise StreamError(f"{error}; {layout}") from error
    base, train_folder, test_folder = _sides(top, layout)
    train = {p.name: image_files(p) for p in class_folders(train_folder)}
    source = "folders"
    if test_folder is not None:
        test = {p.name: image_files(p) for p in class_folders(test_folder)}
        accept(sorted({*train, *test}))
    else:
        if split == "never" or (split == "one-folder" and train_folder != base):
            raise StreamError(
                f"{root} has no test images, and a split of its own is published; {layout}"
            )
        accept(sorted(train))
        _check(train, train, layout)
        train, test, place = seeded_split(base, train, test_share, split_seed)
        source = str(place)
    if skip_bad:  # after the split, which then stays the same
        skipped = bad_images([p for side in (train, test) for own in side.values() for p in own])
        left_out = set(skipped)
        train = {k: [p for p in own if p not in left_out] for k, own in train.items()}
        test = {k: [p for p in own if p not in left_out] for k, own in test.items()}
        if skipped:
            warnings.warn(
                f"{len(skipped)} files of {root} can't be decoded and are left out, the first is "
                f"{skipped[0]}",
                stacklevel=3,
            )
    _check(train, test, layout)
    return ImageTree(sorted({*train, *test}), train, test, source)


def _check(train: dict[str, list[Path]], test: dict[str, list[Path]], layout: str) -> None:
    """Refuse a class without training images; say which have none for testing."""
    classes = sorted({*train, *test})
    if not any(train.values()):
        raise StreamError(f"there are no training images; {layout}")
    without = [name for name in classes if not train.get(name)]
    if without:
        where = "only test images" if test.get(without[0]) else "no images"
        raise StreamError(
            f"class {without[0]!r} has {where} ({len(without)} of {len(classes)} classes have no "
            f"training images); {layout}"
        )
    if not any(test.values()):
        raise StreamError(f"there are no test images; {layout}")
    untested = [name for name in classes if not test.get(name)]
    if untested:
        warnings.warn(
            f"{len(untested)} of {len(classes)} classes have no test images, the first is "
            f"{untested[0]!r}: nothing is measured on them",
            stacklevel=4,
        )


def only(fitting: list[Path], top: Path, layout: str) -> Path | None:
    """Return the one folder that fits, None where none does; several are an error."""
    if len(fitting) > 1:
        names = ", ".join(p.name for p in fitting[:6])
        raise StreamError(
            f"{top} holds {len(fitting)} folders that could be meant ({names}): pass one of them "
            f"as the root; {layout}"
        )
    return fitting[0] if fitting else None


def found_in(folder: Path) -> str:
    """Return the first names in a folder, for an error message."""
    if not folder.is_dir():
        return "no such folder"
    return ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"


def _sides(top: Path, layout: str) -> tuple[Path, Path, Path | None]:
    """Return (base, train folder, test folder or None) of ``top``, or of the one folder in it."""
    inner = class_folders(top)
    rules: list[Callable[[Path], bool]] = [
        lambda p: (p / "train").is_dir() and (p / "test").is_dir(),
        lambda p: bool(class_folders(p / "train")),
    ]
    for rule in rules:
        base = top if rule(top) else only([p for p in inner if rule(p)], top, layout)
        if base is not None:
            test = base / "test"
            if not test.is_dir():
                beside = [p.name for p in class_folders(base) if p.name != "train"]
                if beside:
                    warnings.warn(
                        f"{base} has no folder test; {', '.join(beside[:4])} beside train is not "
                        f"read, and training images are split",
                        stacklevel=4,
                    )
            return base, base / "train", test if test.is_dir() else None
    if (top / "test").is_dir():
        raise StreamError(f"{top} has test images alone, and no folder train; {layout}")
    if any(image_files(p) for p in inner):
        return top, top, None
    base = only([p for p in inner if any(image_files(q) for q in class_folders(p))], top, layout)
    if base is None:
        raise StreamError(f"{top} holds {found_in(top)}; {layout}")
    return base, base, None
