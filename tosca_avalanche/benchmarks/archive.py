"""Tars of image folders, unpacked once into the cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from tosca_avalanche.errors import StreamError
from tosca_avalanche.files import cache_root, locked


def opened(root: str | Path) -> Path:
    """Return the folder at ``root``, or that of the tar at ``root``.

    :raises StreamError: neither.
    """
    path = Path(root).expanduser()
    if path.is_file():
        if not tarfile.is_tarfile(path):
            raise StreamError(f"{root} is a file but no tar: unpack it and pass the folder")
        path = unpack(path)
    if not path.is_dir():
        raise StreamError(f"stream folder {root} does not exist")
    return path


def unpack(archive: Path) -> Path:
    """Unpack a tar once into the cache folder and return the folder; safe for two processes."""
    info = archive.stat()
    mark = f"{archive.resolve()} {info.st_size} {info.st_mtime_ns}"
    name = f"{archive.name.split('.')[0]}-{hashlib.sha256(mark.encode()).hexdigest()[:12]}"
    target = cache_root() / "streams" / name
    with locked(target.with_suffix(".lock")):
        if not target.is_dir():
            temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{name}."))
            try:
                with tarfile.open(archive) as tar:
                    _extract(tar, temporary)
                os.replace(temporary, target)
            except (tarfile.TarError, EOFError) as error:
                raise StreamError(f"{archive} could not be unpacked: {error}") from error
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return target


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Unpack, and refuse members that lead out of the folder."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="data")
        return
    # Python before 3.10.12 and 3.11.4 has no filters: only plain files and folders pass
    for member in tar.getmembers():
        path = PurePosixPath(member.name)
        if not (member.isfile() or member.isdir()) or path.is_absolute() or ".." in path.parts:
            raise tarfile.TarError(f"{member.name!r} is no file or folder inside the archive")
    tar.extractall(folder)
