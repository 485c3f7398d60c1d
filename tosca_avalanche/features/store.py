"""A store of features on disk or in memory: each image through the backbone once."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tosca_avalanche.errors import RecordError, StoreError
from tosca_avalanche.files import atomic_write, cache_root, locked, read_json, write_json

KEY_BYTES = 16
DTYPES = ("float32", "float16")
_HEAD = np.lib.format.magic(1, 0)


class FeatureStore:
    """Features by backbone, transform, view and image content.

    ``root/SPACE/shard-CHECKSUM.npy``: a space is one backbone fingerprint, transform,
    view and dtype; a shard holds (image key, feature) records, is memory-mapped, never
    changes, and its name is the checksum of its content. A damaged shard is found by
    that, named in a warning and taken away: its images are passed again.

    :param root: folder; default ``$TOSCA_CACHE/features`` or the platform's cache
        folder. None keeps everything in memory.
    :param dtype: "float32", or "float16" at half the size.
    """

    def __init__(self, root: str | Path | None = "default", dtype: str = "float32") -> None:
        if dtype not in DTYPES:
            raise StoreError(f"FeatureStore: dtype={dtype!r} is unknown; choose one of {DTYPES}")
        self.root = cache_root() / "features" if root == "default" else root and Path(root)
        self.dtype = dtype
        self._spaces: dict[str, FeatureSpace] = {}

    def space(self, **description: Any) -> FeatureSpace:
        """Return the space of a description (backbone, fingerprint, transform, view, dim)."""
        description = {**description, "dtype": self.dtype}
        digest = hashlib.sha256(repr(sorted(description.items())).encode()).hexdigest()[:24]
        if digest not in self._spaces:
            folder = self.root / digest if isinstance(self.root, Path) else None
            self._spaces[digest] = FeatureSpace(folder, description)
        return self._spaces[digest]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open shards behind: another process opens its own."""
        return {"root": self.root, "dtype": self.dtype, "_spaces": {}}


class FeatureSpace:
    """The features of one backbone, transform and view."""

    def __init__(self, folder: Path | None, description: dict[str, Any]) -> None:
        self.folder, self.description = folder, description
        self.dim = int(description["dim"])
        self.record = np.dtype(
            [("key", f"S{KEY_BYTES}"), ("feature", description["dtype"], (self.dim,))]
        )
        self._shards: list[np.ndarray] = []
        self._known: set[str] = set()
        self._rows: dict[bytes, tuple[int, int]] = {}
        self.refresh()
        if folder is not None and (folder / "space.json").exists():
            os.utime(folder / "space.json")  # last use, for prune

    def __len__(self) -> int:
        return len(self._rows)

    def refresh(self) -> None:
        """Take in shards that another process has written since.

        :raises StoreError: one can't be read, though it may be whole; it stays where it is.
        """
        if self.folder is None or not self.folder.is_dir():
            return
        if not self._take_in(self.folder):  # some were merged meanwhile: into one not listed yet
            self._take_in(self.folder)

    def _take_in(self, folder: Path) -> bool:
        """Open the shards not known yet; tell whether all that were listed were still there."""
        all_there = True
        for path in sorted(folder.glob("shard-*.npy")):
            if path.name in self._known:
                continue
            try:
                shard = open_shard(path, self.record)
            except FileNotFoundError:
                all_there = False
                continue
            self._known.add(path.name)
            if shard is None:
                warnings.warn(
                    f"feature shard {path} is damaged; it is taken away and its images are "
                    f"passed through the backbone again",
                    stacklevel=2,
                )
                path.unlink(missing_ok=True)
                continue
            self._add(shard)
        return all_there

    def _add(self, shard: np.ndarray) -> None:
        number = len(self._shards)
        self._shards.append(shard)
        for i, key in enumerate(shard["key"].tolist()):
            self._rows[key.ljust(KEY_BYTES, b"\0")] = (number, i)

    def missing(self, keys: list[bytes]) -> list[int]:
        """Return the positions of keys that are not stored; a key asked for twice counts once."""
        first: dict[bytes, int] = {}
        for i, key in enumerate(keys):
            if key not in self._rows:
                first.setdefault(key, i)
        return list(first.values())

    def read(self, keys: list[bytes]) -> np.ndarray:
        """Return the features [len(keys), d] in float32; every key must be stored."""
        out = np.empty((len(keys), self.dim), dtype=np.float32)
        places = np.array([self._rows[key] for key in keys], dtype=np.int64).reshape(-1, 2)
        for number in np.unique(places[:, 0]):
            here = places[:, 0] == number
            out[here] = self._shards[number]["feature"][places[here, 1]]
        return out

    def write(self, keys: list[bytes], features: np.ndarray) -> None:
        """Store features [len(keys), d].

        :raises StoreError: no space left; what was stored before stays valid.
        """
        shard = np.zeros(len(keys), dtype=self.record)
        shard["key"] = keys
        with np.errstate(over="ignore"):  # an overflow is the error below
            shard["feature"] = features
        if not np.isfinite(shard["feature"]).all():
            raise StoreError(
                f"a feature is too large for {self.description['dtype']}; use dtype='float32'"
            )
        if self.folder is None:
            self._add(shard)
            return
        name = f"shard-{checksum(shard)}.npy"
        try:
            if not (self.folder / "space.json").exists():
                write_json(self.folder / "space.json", self.description)
            atomic_write(self.folder / name, lambda p: _save(p, shard))
        except OSError as error:
            raise StoreError(
                f"features could not be written to {self.folder} ({error}). What was stored "
                f"before is intact; free some space, set TOSCA_CACHE to another folder, or pass "
                f"store=None to keep features in memory"
            ) from error
        self.refresh()

    @contextmanager
    def extraction(self) -> Iterator[None]:
        """Hold this space's lock: one process extracts, the others wait and then read.

        The lock of a process that died is free at once.
        """
        if self.folder is None:
            yield
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.folder} can't be made ({error}); set TOSCA_CACHE") from error
        with locked(self.folder / ".lock"):
            self.refresh()
            yield
            self.merge()

    def merge(self, most: int = 64) -> None:
        """Turn many small shards into one, so that long streams don't leave a file a task.

        Only under the lock. Readers keep the files that they have mapped.
        """
        if self.folder is None:
            return
        try:
            paths = sorted(self.folder.glob("shard-*.npy"))
            small = [p for p in paths if p.stat().st_size < 2**22]
            if len(small) <= most:
                return
            shards = [s for p in small if (s := open_shard(p, self.record)) is not None]
        except FileNotFoundError:  # a damaged one was taken away just now: merge next time
            return
        whole = np.concatenate(shards)
        atomic_write(self.folder / f"shard-{checksum(whole)}.npy", lambda p: _save(p, whole))
        for path in small:
            path.unlink(missing_ok=True)
        self._shards, self._known, self._rows = [], set(), {}
        self.refresh()


def open_shard(path: Path, record: np.dtype | None = None) -> np.ndarray | None:
    """Map a shard into memory; None where its content is not what its name says.

    :raises FileNotFoundError: it is gone; another process has merged it.
    :raises StoreError: it can't be read at all (too many open files, no permission, a disk or
        network at fault): that tells nothing about its content.
    """
    try:
        with open(path, "rb") as file:
            if file.read(len(_HEAD)) != _HEAD:
                return None
        shard = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise
    except (OSError, MemoryError) as error:
        raise StoreError(
            f"feature shard {path} can't be read ({error or type(error).__name__}); it may be "
            f"whole and is left as it is"
        ) from error
    except Exception:  # a damaged header gives many kinds
        return None
    if shard.ndim != 1 or (record is not None and shard.dtype != record):
        return None
    return shard if path.stem == f"shard-{checksum(shard)}" else None


def checksum(shard: np.ndarray) -> str:
    """Return the checksum of a shard's records."""
    digest = hashlib.blake2b(str(shard.dtype).encode(), digest_size=KEY_BYTES)
    digest.update(np.ascontiguousarray(shard).view(np.uint8).data)
    return digest.hexdigest()


def _save(path: Path, shard: np.ndarray) -> None:
    with open(path, "wb") as file:
        np.save(file, shard, allow_pickle=False)


def spaces(root: str | Path | None = None) -> list[dict[str, Any]]:
    """Describe every space below a root: its folder, images, bytes, days since last use."""
    top = cache_root() / "features" if root is None else Path(root)
    out = []
    for mark in sorted(top.glob("*/space.json")):
        shards = sorted(mark.parent.glob("shard-*.npy"))
        try:
            description = read_json(mark)
            names = [str(description[k]) for k in ("backbone", "view", "dtype")]
            record = int(description["dim"]) * np.dtype(names[2]).itemsize + KEY_BYTES
        except (KeyError, TypeError, ValueError, RecordError) as error:
            raise StoreError(f"{mark} is damaged ({error}); delete its folder") from error
        bytes_ = sum(s.stat().st_size for s in shards)
        out.append(
            {
                "folder": mark.parent,
                "shards": shards,
                "images": sum((s.stat().st_size - 128) // record for s in shards),
                "bytes": bytes_,
                "days": (time.time() - mark.stat().st_mtime) / 86400,
                **description,
            }
        )
    return out
