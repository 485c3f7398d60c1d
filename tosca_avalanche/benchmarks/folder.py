"""Streams from folders of images, ROOT/{train,test}/CLASS/IMAGE, or a tar of one."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from avalanche.benchmarks import CLScenario
from PIL import Image, UnidentifiedImageError

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.benchmarks.class_incremental import LabelledImages, class_incremental
from tosca_avalanche.benchmarks.registry import register_stream
from tosca_avalanche.errors import StreamError
from tosca_avalanche.files import cache_root, locked

EXTENSIONS = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
EXPECTED = "expected ROOT/train/CLASS/IMAGE and ROOT/test/CLASS/IMAGE, or a tar of that"


@register_stream("folder")
def folder(
    transforms: Transforms,
    *,
    root: str,
    classes_per_task: int | Sequence[int] = 10,
    init_classes: int | None = None,
    class_order_seed: int | None = 1993,
) -> CLScenario:
    """Return a class-incremental stream from a folder of images.

    Class ids before the permutation follow the sorted folder names, as in the paper.

    :param transforms: of the backbone.
    :param root: the folder, or a tar file of it, which is unpacked once into the cache
        folder (``TOSCA_CACHE`` or the platform's).
    :param classes_per_task: classes of each task, one number or a list.
    :param init_classes: classes of the first task, where it differs.
    :param class_order_seed: seed of the class order; None for the sorted order.
    :raises StreamError: a missing folder, a class on one side only, no images.
    """
    top = find_root(root)
    names = sorted({p.name for side in ("train", "test") for p in class_folders(top / side)})
    parts = []
    for side in ("train", "test"):
        paths, targets = [], []
        for target, name in enumerate(names):
            images = image_files(top / side / name)
            if not images:
                raise StreamError(
                    f"class {name!r} has no images in {top / side / name}; {EXPECTED}, with every "
                    f"class on both sides"
                )
            paths += images
            targets += [target] * len(images)
        parts.append(LabelledImages(paths, targets, read_image))
    return class_incremental(
        parts[0], parts[1], names, transforms, classes_per_task, init_classes, class_order_seed
    )


def find_root(root: str | Path) -> Path:
    """Return the folder that holds train/ and test/: ``root``, or its only folder, or its tar's."""
    path = Path(root)
    if path.is_file() and tarfile.is_tarfile(path):
        path = unpack(path)
    if not path.is_dir():
        raise StreamError(f"stream folder {root} does not exist; {EXPECTED}")
    for candidate in (path, *sorted(p for p in path.iterdir() if p.is_dir())):
        if (candidate / "train").is_dir() and (candidate / "test").is_dir():
            return candidate
    found = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "nothing"
    raise StreamError(f"{root} holds {found}; {EXPECTED}")


def unpack(archive: Path) -> Path:
    """Unpack a tar once into the cache folder and return the folder; safe for two processes."""
    info = archive.stat()
    mark = f"{archive.resolve()} {info.st_size} {info.st_mtime_ns}"
    name = f"{archive.name.split('.')[0]}-{hashlib.sha256(mark.encode()).hexdigest()[:12]}"
    target = cache_root() / "streams" / name
    with locked(target.with_suffix(".lock")):
        if not target.is_dir():
            temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{name}."))
            try:
                with tarfile.open(archive) as tar:
                    # "data" refuses members that lead out of the folder
                    tar.extractall(temporary, filter="data")
                os.replace(temporary, target)
            except tarfile.TarError as error:
                raise StreamError(f"{archive} could not be unpacked: {error}") from error
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return target


def class_folders(side: Path) -> list[Path]:
    """Return the class folders of one side, sorted; hidden ones are left out."""
    return sorted(p for p in side.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))


def image_files(class_folder: Path) -> list[Path]:
    """Return the image files of a class, sorted; hidden files and other types are left out."""
    if not class_folder.is_dir():
        return []
    return sorted(
        p
        for p in class_folder.iterdir()
        if p.suffix.lower() in EXTENSIONS and not p.name.startswith(".")
    )


def read_image(path: Path) -> Image.Image:
    """Decode an image to RGB; a file that can't be decoded is an error with its path."""
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise StreamError(
            f"image {path} can't be decoded ({error}); replace it or take it away"
        ) from error
