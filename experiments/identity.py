"""What a run is called, where it goes, and which settings make it another run."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

from tosca_avalanche.benchmarks.archive import is_tar, whole_tar
from tosca_avalanche.files import file_sha256

BATCH_ORDERS = {"class-sorted": "sorted", "shuffled": "shuffled"}


def answers_by_batch(method: dict[str, Any]) -> bool:
    """Tell whether a method's settings make an answer depend on the batch it is in."""
    return method.get("selection") == "entropy-batch" or bool(method.get("batchwise"))


def protocol_of(settings: dict[str, Any]) -> str:
    """Return the label of the protocol that gives a run its numbers."""
    if settings["method"].get("selection") == "oracle":
        return "oracle-task"
    if answers_by_batch(settings["method"]):
        order = BATCH_ORDERS[settings["eval_order"]]
        return f"batch{settings['method']['eval_mb_size']}-{order}"
    return "per-image"


def run_path(settings: dict[str, Any]) -> Path:
    """Return ``results_root/STREAM/METHOD/PROTOCOL/seed-N``."""
    seed, order = settings["seed"], settings["class_order_seed"]
    name = f"seed-{seed}" if order in (None, seed) else f"seed-{seed}-order-{order}"
    parts = (label_of(settings["stream"]), label_of(settings["method"]), protocol_of(settings))
    return Path(settings["results_root"], *parts, name)


def label_of(group: dict[str, Any]) -> str:
    """Return what results call a method or a stream: its label, its folder's name, or its name."""
    if group["label"]:
        return str(group["label"])
    if group["name"] in ("folder", "domains"):  # called after what they hold
        return Path(group["root"]).name.split(".")[0]
    return str(group.get("_target_") or group["name"]).rpartition(".")[2]


def identity(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that decide a run's numbers.

    Not where and how results are written, nor where the data lie: of a user's own folder its
    contents count, a data set that has a name is known by it. Of a file of weights both path and
    contents count.
    """
    outside = ("results_root", "overwrite", "num_workers", "store")
    out = {k: v for k, v in settings.items() if k not in outside}
    stream = {k: v for k, v in out["stream"].items() if k != "root"}
    if stream["name"] in ("folder", "domains"):
        stream["data"] = contents(Path(out["stream"]["root"]))
    backbone, weights = out["backbone"], Path(str(out["backbone"]["weights"]))
    if weights.is_file():
        info = weights.stat()
        digest = _digest(weights, info.st_size, info.st_mtime_ns)
        backbone = {**backbone, "weights_sha256": digest}
    return {**out, "stream": stream, "backbone": backbone}


def contents(root: Path) -> str | None:
    """Return how many files a folder or tar holds, and a digest of their names and sizes.

    Without hidden files and the split that reading it may write there; None where there is
    nothing, which the stream says better.
    """
    if root.is_dir():
        inside = (p for p in root.rglob("*") if p.is_file())
        files = [(p.relative_to(root), p.stat().st_size) for p in inside]
    elif root.is_file() and is_tar(root):
        files = _members(root, root.stat().st_mtime_ns)
    else:
        return None
    shown = sorted(
        (path.as_posix(), size)
        for path, size in files
        if not any(part.startswith(".") for part in path.parts)
        and not path.match("split-*-seed-*.json")
    )
    return f"{len(shown)} files, {hashlib.sha256(repr(shown).encode()).hexdigest()[:16]}"


@functools.cache
def _digest(path: Path, size: int, changed: int) -> str:
    """Return the SHA-256 of a file; computed once, though each of many runs asks."""
    return file_sha256(path)


@functools.cache
def _members(path: Path, changed: int) -> list[tuple[Path, int]]:
    """Return name and size of a tar's files; listed once, though each of many runs asks."""
    with whole_tar(path) as tar:
        return [(Path(m.name), m.size) for m in tar if m.isfile()]
