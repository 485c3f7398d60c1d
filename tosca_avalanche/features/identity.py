"""Who an image is, and what a transform does: keys by content, never by path or by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tosca_avalanche.features.store import KEY_BYTES
from tosca_avalanche.seeding import seeded_globals

# transforms that may do nothing to a probe by chance, or because it has the right size already
_RANDOM_WORDS = ("Random", "Jitter", "AutoAugment", "RandAugment", "TrivialAugment", "AugMix")

_PROBE_SIZES = ((56, 40), (300, 500), (64, 64), (224, 224))


def image_key(item: Any) -> bytes:
    """Return the key (16 bytes) of an image: a file's bytes, or pixels with shape and type.

    :param item: a path, bytes, a PIL image, an array or a tensor.
    :raises TypeError: anything else.
    """
    digest = hashlib.blake2b(digest_size=KEY_BYTES)
    if isinstance(item, Path):
        digest.update(b"file")
        digest.update(item.read_bytes())
    elif isinstance(item, bytes):
        digest.update(b"file")
        digest.update(item)
    elif isinstance(item, Image.Image):
        digest.update(f"pil {item.mode} {item.size} {item.getpalette()}".encode())
        digest.update(item.tobytes())
    elif isinstance(item, (np.ndarray, torch.Tensor)):
        array = item.detach().cpu().numpy() if isinstance(item, torch.Tensor) else item
        digest.update(f"{type(item).__name__} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    else:
        raise TypeError(f"an image of type {type(item).__name__} has no content key")
    return digest.digest()


def salted(key: bytes, salt: str) -> bytes:
    """Return another key for the same image in another reading, such as another decoder."""
    return hashlib.blake2b(key + salt.encode(), digest_size=KEY_BYTES).digest()


def source_key(source: Any, load: Callable[[Any], Any]) -> bytes | None:
    """Return the key of an image's source together with the function that decodes it.

    None where the function has no name of its own: two lambdas share theirs.
    """
    name = f"{getattr(load, '__module__', '')}.{getattr(load, '__qualname__', '<')}"
    if "<" in name:
        return None
    return salted(image_key(source), f"{name} {getattr(load, 'version', 0)}")


def transform_key(transform: Callable[[Any], Any], like: Any) -> tuple[str, bool]:
    """Return a key of what a transform does, and whether it is random.

    Neither its name nor its printed form tells two transforms apart for sure (printed
    numbers are rounded), so its effect on fixed probe images does: noise in four sizes, in
    the mode of ``like`` where that is a PIL image. The size of ``like`` does not count: files
    of a data set differ in theirs, and their features belong together. A random transform
    gives a key as well, under a fixed seed.

    :param transform: one image to one tensor.
    :param like: an image of the data set, for its type, mode and shape.
    """
    digest = hashlib.blake2b(digest_size=KEY_BYTES)
    random = _named_random(transform)
    for probe in _probes(like):
        outputs = []
        for seed in range(4):
            with seeded_globals(seed):
                outputs.append(image_key(torch.as_tensor(np.asarray(transform(probe)))))
        random = random or len(set(outputs)) > 1
        digest.update(outputs[0])
    return digest.hexdigest(), random


def _probes(like: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    if isinstance(like, Image.Image):
        noise = [rng.integers(0, 256, (h, w, 3), np.uint8) for h, w in _PROBE_SIZES]
        return [Image.fromarray(a).convert(like.mode) for a in noise]
    if isinstance(like, torch.Tensor):
        pixels = torch.from_numpy(rng.integers(0, 256, tuple(like.shape)).astype(np.float64))
        return [(pixels if not like.is_floating_point() else pixels / 256).to(like.dtype)]
    array = np.asarray(like)
    values = rng.integers(0, 256, array.shape)
    return [(values if array.dtype.kind in "iu" else values / 256).astype(array.dtype)]


def _named_random(transform: Any, depth: int = 0) -> bool:
    if any(word in type(transform).__name__ for word in _RANDOM_WORDS):
        return True
    inner = getattr(transform, "transforms", None) or getattr(transform, "transform", None)
    if depth > 8 or inner is None or isinstance(inner, str):
        return False
    steps = inner if isinstance(inner, (list, tuple)) else [inner]
    return any(_named_random(step, depth + 1) for step in steps)
