"""Fashion-MNIST, through torchvision or from a folder of idx files."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from avalanche.benchmarks import CLScenario
from torchvision.datasets import FashionMNIST

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.benchmarks.class_incremental import LabelledImages, as_is, class_incremental
from tosca_avalanche.benchmarks.registry import register_stream
from tosca_avalanche.benchmarks.tree import found_in
from tosca_avalanche.errors import StreamError
from tosca_avalanche.files import cache_root, locked

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
EXPECTED = (
    "expected the four files {train,t10k}-{images-idx3,labels-idx1}-ubyte, or .gz, in ROOT or in "
    "ROOT/FashionMNIST/raw (https://github.com/zalandoresearch/fashion-mnist)"
)


@register_stream("fashion_mnist")
def fashion_mnist(
    root: str,
    transforms: Transforms | None = None,
    *,
    classes_per_task: int | Sequence[int] = 2,
    init_classes: int | None = None,
    class_order_seed: int | None = 1993,
    download: bool = True,
) -> CLScenario:
    """Return the stream: 10 classes, 60,000 training and 10,000 test images of 28 x 28.

    :param root: folder of the four idx files (or .gz), or torchvision's root, into which
        they are fetched where they are missing and ``download`` is set.
    :param transforms: of the backbone; the paper's by default.
    :raises StreamError: files that are missing and can't be fetched, or damaged.
    """
    top = Path(root).expanduser()
    places = (top, top / "FashionMNIST" / "raw")
    found = next((p for p in places if all(_file(p, f) for s in FILES.values() for f in s)), None)
    if found is None and download:
        try:
            with locked(cache_root() / "fashion_mnist.lock"):
                FashionMNIST(top, download=True)
            found = places[1]
        except (OSError, RuntimeError) as error:
            raise StreamError(
                f"Fashion-MNIST is not in {root} and can't be fetched ({error}); {EXPECTED}"
            ) from error
    if found is None:
        raise StreamError(f"Fashion-MNIST is not in {root}, found {found_in(top)}; {EXPECTED}")
    parts = []
    for images, labels in FILES.values():
        pixels, targets = read_idx(_file(found, images)), read_idx(_file(found, labels))
        if len(pixels) != len(targets) or targets.max(initial=0) > 9:
            raise StreamError(
                f"{found / images} holds {len(pixels)} images, {found / labels} {len(targets)} "
                f"labels up to {targets.max(initial=0)}: they don't belong together; {EXPECTED}"
            )
        parts.append(LabelledImages(list(pixels), targets.tolist(), as_is))
    return class_incremental(
        parts[0], parts[1], FashionMNIST.classes, transforms, classes_per_task, init_classes,
        class_order_seed,
    )  # fmt: skip


def read_idx(path: Path | None) -> np.ndarray:
    """Return the array of an idx file of bytes, plain or gzip."""
    assert path is not None
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        dimensions = raw[3]
        shape = tuple(np.frombuffer(raw, ">u4", dimensions, 4).tolist())
        if raw[:3] != b"\0\0\x08":
            raise ValueError(f"it starts with {raw[:4].hex()}, not with that of an idx of bytes")
        data = np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions)
        return data.reshape(shape)
    except (OSError, EOFError, ValueError, IndexError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise StreamError(f"{path} is no idx file, or a damaged one ({error})") from error


def _file(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
