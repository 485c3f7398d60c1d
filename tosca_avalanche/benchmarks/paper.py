"""The seven data sets of the paper, in its protocol (B0-IncK, class order of seed 1993)."""

from __future__ import annotations

import warnings
from pathlib import Path

from avalanche.benchmarks import CLScenario
from torchvision.datasets import CIFAR100

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.benchmarks.archive import opened
from tosca_avalanche.benchmarks.class_incremental import LabelledImages, class_incremental
from tosca_avalanche.benchmarks.images import class_folders
from tosca_avalanche.benchmarks.published import PUBLISHED, TOTALS
from tosca_avalanche.benchmarks.registry import register_stream
from tosca_avalanche.benchmarks.tree import ImageTree, found_in, read_tree
from tosca_avalanche.errors import StreamError
from tosca_avalanche.files import cache_root, locked

_KEYS = """

    :param root: the folder, or a tar of it.
    :param transforms: of the backbone; the paper's by default.
    :param increment: classes of each task; a remainder makes a smaller last one.
    :param init_classes: classes of the first task, where it differs.
    :param class_order_seed: seed of the class order; None for the order of the class ids.
    :raises StreamError: a missing or misplaced folder, with the expected tree.
    """


@register_stream("cifar100")
def cifar100(
    root: str,
    transforms: Transforms | None = None,
    *,
    increment: int = 5,
    init_classes: int | None = None,
    class_order_seed: int | None = 1993,
    download: bool = True,
) -> CLScenario:
    """Return CIFAR-100, B0-Inc5, through torchvision (fetched if missing and ``download``)."""
    parts, top = [], Path(root).expanduser()
    try:
        with locked(cache_root() / "cifar100.lock"):  # two processes must not fetch into one file
            sides = [CIFAR100(top, train=train, download=download) for train in (True, False)]
    except (OSError, RuntimeError) as error:
        raise StreamError(
            f"CIFAR-100 is not whole in {root} ({error}); found {found_in(top)}; "
            f"{PUBLISHED['cifar100'].hint}"
        ) from error
    for data in sides:
        parts.append(LabelledImages(list(data.data), data.targets, _as_is))
    return class_incremental(
        parts[0], parts[1], sides[0].classes, transforms, increment, init_classes,
        class_order_seed,
    )  # fmt: skip


@register_stream("cub200")
def cub200(
    root: str,
    transforms: Transforms | None = None,
    *,
    increment: int = 10,
    init_classes: int | None = None,
    class_order_seed: int | None = 1993,
) -> CLScenario:
    """Return CUB-200, B0-Inc10.

    From train and test folders (the toolboxes' split: 9,430 / 2,358), or from the original
    archive with its official split (5,994 / 5,788): numbers of the two differ.
    """
    return _stream("cub200", root, transforms, increment, init_classes, class_order_seed)


@register_stream("imagenet_r")
def imagenet_r(
    root: str,
    transforms: Transforms | None = None,
    *,
    increment: int = 20,
    init_classes: int | None = None,
    class_order_seed: int | None = 1993,
    split_seed: int = 0,
) -> CLScenario:
    """Return ImageNet-R, B0-Inc20.

    From train and test folders (24,000 / 6,000), or from one folder of wnids with a seeded
    80/20 split of ours that is written down.
    """
    return _stream(
        "imagenet_r", root, transforms, increment, init_classes, class_order_seed, split_seed
    )


@register_stream("imagenet_a")
def imagenet_a(
    root: str,
    transforms: Transforms | None = None,
    *,
    increment: int = 20,
    init_classes: int | None = None,
    class_order_seed: int | None = 1993,
    split_seed: int = 0,
) -> CLScenario:
    """Return ImageNet-A, B0-Inc20; layouts as :func:`imagenet_r` (5,981 / 1,519)."""
    return _stream(
        "imagenet_a", root, transforms, increment, init_classes, class_order_seed, split_seed
    )


@register_stream("omnibenchmark")
def omnibenchmark(
    root: str,
    transforms: Transforms | None = None,
    *,
    increment: int = 30,
    init_classes: int | None = None,
    class_order_seed: int | None = 1993,
) -> CLScenario:
    """Return OmniBenchmark, 300 classes, B0-Inc30."""
    return _stream("omnibenchmark", root, transforms, increment, init_classes, class_order_seed)


@register_stream("vtab")
def vtab(
    root: str,
    transforms: Transforms | None = None,
    *,
    increment: int = 10,
    init_classes: int | None = None,
    class_order_seed: int | None = 1993,
) -> CLScenario:
    """Return VTAB, 5 domains of 10 classes, B0-Inc10.

    The permuted classes of the TOSCA paper; EASE, MOS and APER take the domains one after
    another, which is ``class_order_seed=None``. Their numbers are not comparable.
    """
    return _stream("vtab", root, transforms, increment, init_classes, class_order_seed)


@register_stream("eurosat")
def eurosat(
    root: str,
    transforms: Transforms | None = None,
    *,
    increment: int = 2,
    init_classes: int | None = None,
    class_order_seed: int | None = 1993,
    split_seed: int = 0,
) -> CLScenario:
    """Return EuroSAT, 10 classes, B0-Inc2.

    There is no official split: from one folder (torchvision's ``2750``) comes a seeded
    80/20 split of ours that is written down.
    """
    return _stream(
        "eurosat", root, transforms, increment, init_classes, class_order_seed, split_seed
    )


SEVEN = (cifar100, cub200, imagenet_r, imagenet_a, omnibenchmark, vtab, eurosat)
for _function in SEVEN:
    _function.__doc__ = f"{(_function.__doc__ or '').rstrip()}{_KEYS}"


def paper_tree(name: str, root: str, split_seed: int = 0) -> ImageTree:
    """Return the files of one of the data sets that are folders.

    :raises StreamError: a missing or misplaced folder, or another number of classes.
    """
    known = PUBLISHED[name]

    def accept(classes: list[str]) -> None:
        if len(classes) != known.classes:
            raise StreamError(
                f"{known.title} has {known.classes} classes, {root} has {len(classes)} "
                f"({', '.join(classes[:4])}, ...); {known.hint}"
            )

    try:
        top = opened(root)
    except StreamError as error:
        raise StreamError(f"{known.title}: {error}; {known.hint}") from error
    if name == "cub200" and (archive := cub_archive(top)) is not None:
        accept(archive.classes)
        return archive
    if name == "eurosat":
        top = next((p for p in (top / "eurosat" / "2750", top / "2750") if p.is_dir()), top)
    ours = "one-folder" if name in ("imagenet_r", "imagenet_a", "eurosat") else "never"
    tree = read_tree(top, layout=known.hint, split_seed=split_seed, split=ours, accept=accept)
    total = tree.count("train") + tree.count("test")
    if tree.split != "folders" and total != TOTALS[name]:
        warnings.warn(
            f"{known.title} has {TOTALS[name]:,} images, {root} has {total:,}: the seeded split "
            f"is of these",
            stacklevel=4,
        )
    return tree


def cub_archive(top: Path) -> ImageTree | None:
    """Return CUB's original archive with its official split; None where it is not one.

    Folders train and test beside the archive's files are a split that somebody made on
    purpose: they go first.
    """
    base = next((p for p in (top, *class_folders(top)) if (p / "images.txt").is_file()), None)
    if base is None or any((p / "train").is_dir() and (p / "test").is_dir() for p in (top, base)):
        return None
    hint = PUBLISHED["cub200"].hint
    tables = {}
    for name in ("classes", "images", "image_class_labels", "train_test_split"):
        try:
            lines = (base / f"{name}.txt").read_text(encoding="utf-8").split("\n")
            tables[name] = dict(line.split(maxsplit=1) for line in lines if line.strip())
        except (OSError, ValueError) as error:
            raise StreamError(f"{base / name}.txt can't be read ({error}); {hint}") from error
    sides: dict[str, dict[str, list[Path]]] = {"0": {}, "1": {}}
    for image, path in sorted(tables["images"].items(), key=lambda item: int(item[0])):
        file = base / "images" / path.strip()
        if not file.is_file():
            raise StreamError(f"{file} of images.txt is missing; {hint}")
        try:
            label = tables["classes"][tables["image_class_labels"][image].strip()].strip()
            side = sides[tables["train_test_split"][image].strip()]
        except KeyError as error:
            raise StreamError(
                f"image {image} of {base / 'images.txt'} has no class or no side; {hint}"
            ) from error
        side.setdefault(label, []).append(file)
    classes = [tables["classes"][i].strip() for i in sorted(tables["classes"], key=int)]
    return ImageTree(classes, sides["1"], sides["0"], "official")


def _stream(
    name: str,
    root: str,
    transforms: Transforms | None,
    increment: int,
    init_classes: int | None,
    class_order_seed: int | None,
    split_seed: int = 0,
) -> CLScenario:
    tree = paper_tree(name, root, split_seed)
    benchmark = class_incremental(
        tree.images("train"), tree.images("test"), tree.classes, transforms, increment,
        init_classes, class_order_seed,
    )  # fmt: skip
    benchmark.split = tree.split
    return benchmark


def _as_is(image: object) -> object:
    return image
