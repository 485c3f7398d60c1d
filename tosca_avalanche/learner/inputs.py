"""What people hand over as images, features and labels, brought into one form or named."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from tosca_avalanche.errors import InputError
from tosca_avalanche.features import image_key, source_key
from tosca_avalanche.images import class_folders, image_files, images_below, read_image, to_rgb
from tosca_avalanche.learner.labels import Label, plain_labels

CHANNELS = (1, 3, 4)


class Pictures(Dataset):
    """Images of any accepted kind as (transformed tensor, 0), each with a key of its content.

    :param sources: paths, PIL images, arrays [H, W] or [H, W, C], tensors [C, H, W].
    :param transform: RGB image to tensor, the backbone's own.
    """

    def __init__(self, sources: Sequence[Any], transform: Callable[[Image.Image], Tensor]) -> None:
        self.sources, self.transform = sources, transform

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(as_rgb(self.sources[index], f"image {index}")), 0

    def key(self, index: int) -> bytes:
        """Return the key of an image: by its file, else by its pixels."""
        source = self.sources[index]
        if isinstance(source, (str, Path)):
            as_file(source)
            return source_key(Path(source), read_image) or b""
        return image_key(as_rgb(source, f"image {index}"))


class _FirstFields(Sequence):
    """The images of a data set, read when they are asked for."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index][0]


def as_rgb(image: Any, place: str) -> Image.Image:
    """Turn an image of any accepted kind into RGB with 8 bits.

    :param image: a path, a PIL image, an array [H, W] or [H, W, C] or a tensor [H, W] or
        [C, H, W], with C = 1, 3 or 4; uint8, or floating-point in [0, 1], which is rounded
        to 8 bits, so that all forms of one picture give one answer.
    :param place: what errors call it.
    :raises InputError: another shape, type or range.
    """
    if isinstance(image, (str, Path)):
        return read_image(as_file(image))
    if isinstance(image, Image.Image):
        try:
            return to_rgb(image)
        except ValueError as error:
            raise InputError(f"{place}: {error}") from error
    if isinstance(image, Tensor):
        pixels, layout, axis = image.detach().cpu(), "a tensor is [C, H, W]", 0
        array = (pixels.float() if pixels.is_floating_point() else pixels).numpy()
    elif isinstance(image, np.ndarray):
        array, layout, axis = image, "an array is [H, W, C]", -1
    else:
        raise InputError(
            f"{place} is of type {type(image).__name__}; give a path, a PIL image, an array or a "
            f"tensor"
        )
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise InputError(f"{place} has shape {tuple(array.shape)}; {layout}")
    if array.ndim == 3:
        if array.shape[axis] not in CHANNELS:
            other = " (it looks like the other order)" if array.shape[~axis] in CHANNELS else ""
            raise InputError(
                f"{place} has shape {tuple(array.shape)}; {layout} with C = 1, 3 or 4{other}"
            )
        array = np.moveaxis(array, axis, -1)
        array = array[..., 0] if array.shape[-1] == 1 else array
    return to_rgb(Image.fromarray(_eight_bits(array, place)))


def _eight_bits(array: np.ndarray, place: str) -> np.ndarray:
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind != "f":
        raise InputError(
            f"{place} has pixels of type {array.dtype}; give uint8 in 0..255, or floats in [0, 1]"
        )
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):
        hint = "scale them to [0, 1], undoing any normalisation"
        if low >= 0 and high <= 255:
            hint = "divide by 255, or turn them into uint8"
        if not math.isfinite(low + high):
            hint = "look at its pixels"
        raise InputError(
            f"{place} has floating-point pixels from {low:.4g} to {high:.4g} instead of [0, 1]; "
            f"{hint}. The backbone's own normalisation is done here"
        )
    return np.rint(array * 255).astype(np.uint8)


def as_file(path: str | Path) -> Path:
    """Return the path of a file that is there."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is no file; give the path of an image")
    return path


def sources_of(x: Any) -> Sequence[Any] | Tensor:
    """Return a sequence of images, or features [N, d] as a tensor.

    Two-dimensional floating-point arrays and tensors are features, and so are lists of
    numbers; a grey image of floats needs its channel axis. A folder stands for the images
    in it and in its folders, in the order of their paths.

    :param x: one image or a batch: a path or folder, a PIL image, an array [H, W, C] or
        [N, H, W, C], a tensor [C, H, W] or [N, C, H, W], a list of these, or a map-style
        data set whose items start with an image.
    :raises InputError: anything else.
    """
    if isinstance(x, (str, Path)):
        if Path(x).is_dir():
            return images_below(Path(x)) or _no_images(x)
        return [as_file(x)]
    if isinstance(x, Image.Image):
        return [x]
    if isinstance(x, np.ndarray) and x.dtype == object:
        x = list(x)
    if isinstance(x, (list, tuple)):
        if len(x) and all(_is_vector(item) for item in x):
            lengths = {len(item) for item in x}
            if len(lengths) > 1:
                raise InputError(f"features of different widths: {sorted(lengths)[:5]}")
            return torch.stack([torch.as_tensor(np.asarray(item)).float() for item in x])
        return list(x)
    if isinstance(x, (np.ndarray, Tensor)):
        if x.ndim == 2 and (
            x.is_floating_point() if isinstance(x, Tensor) else x.dtype.kind == "f"
        ):
            return torch.as_tensor(x).detach().cpu().float()
        if x.ndim in (2, 3):
            return [x]
        if x.ndim == 4:
            return list(x)
        raise InputError(
            f"a {type(x).__name__} of shape {tuple(x.shape)} is neither images nor features: "
            f"arrays are [H, W, C] or [N, H, W, C], tensors [C, H, W] or [N, C, H, W], features "
            f"[N, d]"
        )
    if hasattr(x, "__getitem__") and hasattr(x, "__len__"):
        return _FirstFields(x)
    raise InputError(
        f"images of type {type(x).__name__} are not known; give a path, a folder, a PIL image, an "
        f"array, a tensor, a list of these, a map-style data set, or features [N, d]"
    )


def _is_vector(item: Any) -> bool:
    if isinstance(item, (np.ndarray, Tensor)):
        return item.ndim == 1
    return isinstance(item, (list, tuple)) and all(isinstance(v, numbers.Real) for v in item)


def _no_images(folder: Any) -> Sequence[Any]:
    raise InputError(f"{folder} holds no images (hidden files are left out)")


def labelled(x: Any, y: Any) -> tuple[Any, list[Label]]:
    """Return images or features and a label for each.

    :param x: as :func:`sources_of` takes it; without ``y`` a folder ROOT/CLASS/IMAGE, whose
        folder names are the labels, or a data set of (image, label).
    :param y: labels, all str or all int.
    :raises InputError: labels that are missing, of another number or type.
    """
    if y is None:
        if isinstance(x, (str, Path)):
            return _class_tree(Path(x))
        if isinstance(x, (np.ndarray, Tensor, Image.Image, list, tuple)) or not (
            hasattr(x, "__getitem__") and hasattr(x, "__len__")
        ):
            raise InputError(
                f"labels are missing: give y, or a folder ROOT/CLASS/IMAGE or a data set of "
                f"(image, label) instead of {type(x).__name__}"
            )
        y = _labels_of(x)
    return x, plain_labels(y)


def _labels_of(dataset: Any) -> Any:
    """Return the labels of a data set's items, without reading the images where that is safe."""
    targets, n = getattr(dataset, "targets", None), len(dataset)
    if targets is not None and len(targets) == n:
        own = plain_labels(list(targets))
        if all(plain_labels([dataset[i][1]]) == own[i : i + 1] for i in {0, n - 1} if n):
            return own
    return [dataset[i][1] for i in range(n)]


def _class_tree(root: Path) -> tuple[list[Path], list[Label]]:
    folders = {p.name: image_files(p) for p in class_folders(root)}
    empty = [name for name, files in folders.items() if not files]
    if not folders or empty:
        what = f"its folder {empty[0]!r} has no images" if empty else "it has no class folders"
        if any(class_folders(root / name) for name in empty):
            what += f" but folders of its own; did you mean {root / empty[0]}?"
        if not root.is_dir():
            what = "there is no such folder"
        raise InputError(f"{root}: {what} (expected ROOT/CLASS/IMAGE)")
    paths = [p for files in folders.values() for p in files]
    return paths, [name for name, files in folders.items() for _ in files]
