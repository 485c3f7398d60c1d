"""Files that are never half-written, locks that die with their process, and the cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from tosca_avalanche.errors import RecordError

SEAL = "checksum"


def cache_root() -> Path:
    """Return the cache folder: ``$TOSCA_CACHE``, else the platform's user cache folder."""
    override = os.environ.get("TOSCA_CACHE")
    return Path(override) if override else Path(platformdirs.user_cache_dir("tosca_avalanche"))


def atomic_write(path: str | Path, write: Callable[[Path], None]) -> Path:
    """Call ``write`` on a temporary file beside ``path``, then rename it to ``path``.

    A crash leaves the old file, or none, never a part of the new one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        # mkstemp makes private files; results are for everyone whom the umask allows
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def write_text(path: str | Path, text: str) -> Path:
    """Write a UTF-8 text file atomically."""
    return atomic_write(path, lambda temporary: _write_text(temporary, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> Path:
    """Write JSON atomically; NaN, infinities and foreign number types are refused."""
    return write_text(path, json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON object; a damaged file is an error that names it."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(
            f"{path} can't be read as JSON ({error}); delete its folder and run again"
        ) from error
    if not isinstance(value, dict):
        raise RecordError(f"{path} holds no JSON object; delete its folder and run again")
    return value


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object with a checksum of its content, for :func:`seal_is_broken`."""
    return {**value, SEAL: _digest(value)}


def seal_is_broken(value: dict[str, Any]) -> bool:
    """Tell whether a JSON object was changed since it was sealed; False where it has no seal."""
    return SEAL in value and value[SEAL] != _digest({k: v for k, v in value.items() if k != SEAL})


def _digest(value: dict[str, Any]) -> str:
    plain = json.loads(json.dumps(value))  # keys become text, tuples lists
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 (hex) of a file's bytes, in little memory."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Hold an exclusive lock on the file ``path`` inside the block.

    The operating system drops the lock when its process dies, so no stale lock is left.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as handle:
        _lock(handle.fileno())
        yield


def _lock(descriptor: int) -> None:
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]
