"""A seeded split into training and test images, written down once and used ever after."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from tosca_avalanche.errors import StreamError
from tosca_avalanche.files import cache_root, locked, write_json
from tosca_avalanche.seeding import derive_seed

SHARE, SEED = 0.2, 0
Files = dict[str, list[Path]]


def seeded_split(
    top: Path, files: Files, share: float = SHARE, seed: int = SEED
) -> tuple[Files, Files, Path]:
    """Return training and test files of each class, and the file that says which is which.

    Of each class round(share * n) images are for testing, at least one where there are two;
    drawn by a generator of (seed, class name), so that another class changes nothing. The
    file is written on the first call, into the folder or, where that can't be written to,
    into the cache folder; later calls read it.

    :param top: the folder that paths are relative to.
    :param files: image files by class.
    :param share: between 0 and 1.
    :raises StreamError: a bad share; a written split that is damaged or was made for other
        files.
    """
    if not 0 < share < 1:
        raise StreamError(f"test_share={share} must lie between 0 and 1, as 0.2 for a fifth")
    name = f"split-{share:g}-seed-{seed}.json"
    by_name = {p.relative_to(top).as_posix(): p for own in files.values() for p in own}
    places = [top / name, _in_cache(top) / name]
    place = next((p for p in places if p.is_file()), None)
    if place is None:
        chosen = [p for label, own in files.items() for p in _drawn(label, own, share, seed)]
        content = {
            "what": "test images, relative to the stream's folder; all others are for training",
            "share": share,
            "seed": seed,
            "images": sorted(by_name),
            "test": sorted(p.relative_to(top).as_posix() for p in chosen),
        }
        place = _written(places, content)
    known, test = _read(place)
    if known != set(by_name) or not test <= known:
        new, gone = sorted(set(by_name) - known), sorted(known - set(by_name))
        first = (new or gone or ["?"])[0]
        raise StreamError(
            f"the split {place} was made for other images: {len(new)} are new, {len(gone)} are "
            f"gone, the first is {first}; put the images back, or delete this one file to split "
            f"anew"
        )
    tested = {by_name[p] for p in test}
    train = {label: [p for p in own if p not in tested] for label, own in files.items()}
    return train, {label: [p for p in own if p in tested] for label, own in files.items()}, place


def _written(places: list[Path], content: dict[str, Any]) -> Path:
    """Write the split into the first place that can be written to, once for all processes."""
    for place in places:
        if place is places[0] and not os.access(place.parent, os.W_OK):
            continue
        try:
            with locked(place.with_name(f".{place.name}.lock")):
                if not place.is_file():
                    write_json(place, content)
            return place
        except OSError as error:
            problem = error
    raise StreamError(f"the split can't be written to {places[-1]}: {problem}")


def _in_cache(top: Path) -> Path:
    place = str(top.resolve()).strip("/\\").replace("/", "-").replace("\\", "-").replace(":", "")
    return cache_root() / "splits" / place


def _read(place: Path) -> tuple[set[str], set[str]]:
    try:
        written = json.loads(place.read_text(encoding="utf-8"))
        return {str(p) for p in written["images"]}, {str(p) for p in written["test"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StreamError(
            f"the split {place} can't be read ({error}); delete this one file to split anew"
        ) from error


def _drawn(name: str, files: list[Path], share: float, seed: int) -> list[Path]:
    n = min(max(1, round(share * len(files))), len(files) - 1)
    draws = np.random.default_rng(derive_seed(seed, "split", name))
    return [files[i] for i in draws.permutation(len(files))[: max(0, n)]]
