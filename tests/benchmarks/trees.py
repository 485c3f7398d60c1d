"""Image folders in miniature."""

from __future__ import annotations

import numpy as np
from PIL import Image


def write_image(path, seed=0, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (6, 5, 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


def write_tree(top, classes, train=2, test=1):
    """ROOT/{train,test}/CLASS/i.png; with ``test`` None ROOT/CLASS/i.png."""
    for c, name in enumerate(classes):
        sides = {"train": train, "test": test} if test is not None else {".": train}
        for side, n in sides.items():
            for i in range(n):
                write_image(top / side / name / f"{i}.png", seed=100 * c + i)
    return top
