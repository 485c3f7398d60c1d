"""The seven data sets of the paper, in its protocol (B0-IncK, class order of seed 1993)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from avalanche.benchmarks import CLScenario
from torchvision.datasets import CIFAR100

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.benchmarks.archive import opened
from tosca_avalanche.benchmarks.class_incremental import LabelledImages, as_is, class_incremental
from tosca_avalanche.benchmarks.published import PUBLISHED, TOTALS
from tosca_avalanche.benchmarks.registry import register_stream
from tosca_avalanche.benchmarks.tree import ImageTree, found_in, read_tree
from tosca_avalanche.errors import StreamError
from tosca_avalanche.files import cache_root, locked
from tosca_avalanche.images import class_folders

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
    """Return CIFAR-100, B0-Inc5, through torchvision, fetched if missing and ``download``."""
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
        parts.append(LabelledImages(list(data.data), data.targets, as_is))
    return class_incremental(
        parts[0], parts[1], sides[0].classes, transforms, increment, init_classes,
        class_order_seed,
    )  # fmt: skip


def _folder_stream(name: str, doc: str) -> Callable[..., CLScenario]:
    """Make and register the stream of a data set that is a folder."""
    published = PUBLISHED[name].increment

    def stream(
        root: str,
        transforms: Transforms | None = None,
        *,
        increment: int = published,
        init_classes: int | None = None,
        class_order_seed: int | None = 1993,
    ) -> CLScenario:
        tree = paper_tree(name, root)
        benchmark = class_incremental(
            tree.images("train"), tree.images("test"), tree.classes, transforms, increment,
            init_classes, class_order_seed,
        )  # fmt: skip
        benchmark.split = tree.split
        return benchmark

    stream.__name__ = stream.__qualname__ = name
    stream.__doc__ = doc + _KEYS
    return register_stream(name)(stream)


cifar100.__doc__ = (cifar100.__doc__ or "") + _KEYS
cub200 = _folder_stream(
    "cub200",
    """Return CUB-200, B0-Inc10.

From train and test folders (the toolboxes' split: 9,430 / 2,358), or from the original
archive with its official split (5,994 / 5,788): numbers of the two differ.""",
)
imagenet_r = _folder_stream(
    "imagenet_r",
    """Return ImageNet-R, B0-Inc20.

From train and test folders (24,000 / 6,000), or from one folder of wnids with a seeded
80/20 split of ours that is written down.""",
)
imagenet_a = _folder_stream(
    "imagenet_a",
    """Return ImageNet-A, B0-Inc20.

From train and test folders (5,981 / 1,519), or from one folder of wnids with a seeded
80/20 split of ours that is written down.""",
)
omnibenchmark = _folder_stream(
    "omnibenchmark", "Return OmniBenchmark, 300 classes, B0-Inc30, from train and test folders."
)
vtab = _folder_stream(
    "vtab",
    """Return VTAB, 5 domains of 10 classes, B0-Inc10, from train and test folders.

The permuted classes of the TOSCA paper; EASE, MOS and APER take the domains one after
another, which is ``class_order_seed=None``. Their numbers are not comparable.""",
)
eurosat = _folder_stream(
    "eurosat",
    """Return EuroSAT, 10 classes, B0-Inc2.

There is no official split: from one folder (torchvision's ``2750``) comes a seeded 80/20
split of ours that is written down.""",
)


def paper_tree(name: str, root: str) -> ImageTree:
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
    tree = read_tree(top, layout=known.hint, split=ours, accept=accept)
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
