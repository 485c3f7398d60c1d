"""A seeded split into training and test images, written down once and used ever after."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tosca_avalanche.errors import RecordError, StreamError
from tosca_avalanche.files import cache_root, locked, read_json, write_json
from tosca_avalanche.seeding import derive_seed

SHARE, SEED = 0.2, 0


def split_file(top: Path, share: float, seed: int) -> Path:
    """Return where the split of a folder is written: in it, or in the cache where that fails."""
    name = f"split-{share:g}-seed-{seed}.json"
    if (top / name).is_file() or os.access(top, os.W_OK):
        return top / name
    place = str(top.resolve()).strip("/\\").replace("/", "-").replace("\\", "-").replace(":", "")
    return cache_root() / "splits" / place / name


def seeded_split(
    top: Path, files: dict[str, list[Path]], share: float = SHARE, seed: int = SEED
) -> tuple[dict[str, list[Path]], dict[str, list[Path]], Path]:
    """Return training and test files of each class, and the file that says which is which.

    Of each class round(share * n) images are for testing, at least one where there are two;
    drawn by a generator of (seed, class name), so that another class changes nothing. The
    file is written on the first call and read on the later ones.

    :param top: the folder that paths are relative to.
    :param files: image files by class.
    :raises StreamError: the written split is damaged, or was made for other files.
    """
    place = split_file(top, share, seed)
    relative = {str(p.relative_to(top).as_posix()): p for own in files.values() for p in own}
    with locked(place.with_name(f".{place.name}.lock")):
        if not place.is_file():
            chosen = [p for name, own in files.items() for p in _drawn(name, own, share, seed)]
            write_json(
                place,
                {
                    "what": "test images, relative to this folder; all others are for training",
                    "share": share,
                    "seed": seed,
                    "images": sorted(relative),
                    "test": sorted(str(p.relative_to(top).as_posix()) for p in chosen),
                },
            )
    try:
        written = read_json(place)
        known, test = set(written["images"]), set(written["test"])
    except (RecordError, KeyError, TypeError) as error:
        raise StreamError(
            f"the split {place} can't be read ({error}); delete it to split anew"
        ) from error
    if known != set(relative) or not test <= known:
        new, gone = sorted(set(relative) - known), sorted(known - set(relative))
        first = (new or gone or ["?"])[0]
        raise StreamError(
            f"the split {place} was made for other images: {len(new)} are new, {len(gone)} are "
            f"gone, the first is {first}; delete the file to split anew"
        )
    sides: tuple[dict[str, list[Path]], dict[str, list[Path]]] = ({}, {})
    for name, own in files.items():
        for i, side in enumerate(sides):
            side[name] = [
                p for p in own if (str(p.relative_to(top).as_posix()) in test) == (i == 1)
            ]
    return *sides, place


def _drawn(name: str, files: list[Path], share: float, seed: int) -> list[Path]:
    n = min(max(1, round(share * len(files))), len(files) - 1)
    draws = np.random.default_rng(derive_seed(seed, "split", name))
    return [files[i] for i in draws.permutation(len(files))[: max(0, n)]]
