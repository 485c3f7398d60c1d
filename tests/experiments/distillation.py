"""What the tests of the distillation script share: tiny images, tiny options, one thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.distil_backbone import main

TEACHER = "resnet10t.c3_in1k"
SMALL = {
    **{"teacher-weights": "random", "teacher-size": 32, "teacher-batch": 5, "components": 8},
    **{"embed-dim": 32, "depth": 1, "heads": 2, "patch": 8, "size": 16},
    **{"batch": 8, "warmup": 2, "lr": 0.01},
}
OPTIONS = [part for name, value in SMALL.items() for part in (f"--{name}", str(value))]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from more threads, and lose a lot on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """3 classes of 8 noisy images, each class of one colour; one lies a folder deeper."""
    draws = np.random.default_rng(0)
    for label, name in enumerate("abc"):
        for index in range(8):
            pixels = draws.integers(0, 120, (20, 24, 3), dtype=np.uint8)
            pixels[..., label] += 120
            path = tmp_path / "images" / name / ("deep" if index == 7 else "") / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
        (tmp_path / "images" / name / "boxes.txt").write_text("no image")
    return tmp_path / "images"


def run(root: Path, name: str, *options: str) -> Path:
    out = root.parent / f"{name}.safetensors"
    main(["--images", str(root), "--teacher", TEACHER, "--out", str(out), *OPTIONS, *options])
    return out
