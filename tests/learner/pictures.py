"""Small pictures of a few classes, as arrays and as folders."""

from __future__ import annotations

import numpy as np
from PIL import Image


def pictures(classes, per_class: int = 6, seed: int = 0, size: int = 16):
    """Return uint8 images [N, size, size, 3] around one picture a class, and classes [N]."""
    images, labels = [], []
    for c in classes:
        base = np.random.default_rng(1000 + c).integers(0, 256, (4, 4, 3)).repeat(size // 4, 0)
        base = base.repeat(size // 4, 1)
        noise = np.random.default_rng(seed * 977 + c).normal(0, 25, (per_class, size, size, 3))
        images.append(np.clip(base + noise, 0, 255).astype(np.uint8))
        labels += [c] * per_class
    return np.concatenate(images), np.array(labels)


def write_folder(root, names: dict[int, str], per_class: int = 6, seed: int = 0):
    """Write ROOT/CLASS/IMAGE.png and return ROOT."""
    for c, name in names.items():
        (root / name).mkdir(parents=True)
        for i, image in enumerate(pictures([c], per_class, seed)[0]):
            Image.fromarray(image).save(root / name / f"{i:03}.png")
    return root
