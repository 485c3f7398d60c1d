"""Files are whole or absent, and locks die with their process."""

import multiprocessing
import os
import stat
import time

import pytest

from tosca_avalanche.files import atomic_write, cache_root, locked, write_json, write_text


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = write_text(tmp_path / "a" / "x.txt", "old")

    def fail(temporary):
        temporary.write_text("half")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        atomic_write(path, fail)
    assert path.read_text() == "old" and [p.name for p in path.parent.iterdir()] == ["x.txt"]


def test_files_are_readable_as_the_umask_allows(tmp_path):
    old = os.umask(0o022)
    try:
        mode = write_text(tmp_path / "x", "").stat().st_mode
    finally:
        os.umask(old)
    assert stat.S_IMODE(mode) == 0o644


def test_json_refuses_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert not list(tmp_path.iterdir())


def hold(path, ready):
    with locked(path):
        ready.set()
        time.sleep(60)


def test_a_lock_excludes_and_dies_with_its_process(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=hold, args=(tmp_path / "lock", ready))
    process.start()
    assert ready.wait(60)
    import fcntl

    with open(tmp_path / "lock", "a+b") as handle:
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.kill()
        process.join()
    with locked(tmp_path / "lock"):
        pass


def test_the_cache_folder_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.setenv("TOSCA_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("TOSCA_CACHE")
    assert "tosca_avalanche" in str(cache_root())
