"""Tars of image folders, unpacked once into the cache folder."""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from tosca_avalanche.errors import StreamError
from tosca_avalanche.files import cache_root, locked

# what a damaged archive gives; the last three where a header holds odd or too large numbers
_DAMAGE = (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError, ValueError,
           OverflowError, MemoryError)  # fmt: skip


def opened(root: str | Path) -> Path:
    """Return the folder at ``root``, or that of the tar at ``root``.

    :raises StreamError: neither.
    """
    path = Path(root).expanduser()
    if path.is_file():
        if not is_tar(path):
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
                with whole_tar(archive) as tar:
                    _extract(tar, temporary)
                os.replace(temporary, target)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return target


def is_tar(path: Path) -> bool:
    """Tell whether a file is a tar, compressed or not.

    :raises StreamError: it is compressed, and what is compressed can't be read.
    """
    try:
        return tarfile.is_tarfile(path)
    except _DAMAGE as error:
        raise _unreadable(path, error) from error


@contextmanager
def whole_tar(archive: Path) -> Iterator[tarfile.TarFile]:
    """Open a tar whose members are read inside the block; its end is checked after it.

    A header that is damaged or cut off looks to ``tarfile`` like the end of the archive, so the
    members before it would pass for all. And the checksum of what is compressed is only compared
    where its last byte is read.

    :raises StreamError: it can't be read, or does not end as a tar must.
    """
    try:
        with tarfile.open(archive) as tar:
            yield tar
            tar.getmembers()
            _check_end(tar)
    except _DAMAGE as error:
        raise _unreadable(archive, error) from error


def _check_end(tar: tarfile.TarFile) -> None:
    """Require zeros alone, a block of them at least, after the last member; read to the end.

    POSIX asks for two blocks; every tar in use reads one.
    """
    file, length = tar.fileobj, 0
    assert file is not None
    file.seek(tar.offset)
    while piece := file.read(2**20):
        length += len(piece)
        if piece.count(0) != len(piece):
            raise tarfile.ReadError(f"after {len(tar.getmembers())} members it is damaged")
    if length < tarfile.BLOCKSIZE:
        raise tarfile.ReadError(f"it is cut short after {len(tar.getmembers())} members")


def _unreadable(archive: Path, error: BaseException) -> StreamError:
    what = str(error) or type(error).__name__
    return StreamError(f"{archive} could not be unpacked: {what}; if it is damaged, fetch it again")


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
