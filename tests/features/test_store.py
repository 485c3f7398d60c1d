"""The feature store: whole or absent, shared by processes, and honest about damage."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import signal
import time
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import tosca_avalanche.features.store as store_module
from tests.conftest import TinyNet, blobs
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import StoreError
from tosca_avalanche.features import FeatureStore, extract, image_key, stored_features
from tosca_avalanche.features.__main__ import main

DESCRIPTION = {
    "backbone": "b", "fingerprint": "f", "transform": "t", "view": "eval", "dim": 3,
}  # fmt: skip


def keys(n, start=0):
    return [image_key(str(i).encode()) for i in range(start, start + n)]


def values(n, start=0):
    return np.arange(3 * start, 3 * (start + n), dtype=np.float32).reshape(n, 3)


@pytest.mark.parametrize("on_disk", [True, False])
def test_what_is_written_is_read(tmp_path, on_disk):
    space = FeatureStore(tmp_path if on_disk else None).space(**DESCRIPTION)
    assert space.missing(keys(4)) == [0, 1, 2, 3]
    space.write(keys(2), values(2))
    space.write(keys(1, 3), values(1, 3))
    assert space.missing(keys(4)) == [2]
    assert space.missing([*keys(1, 2), *keys(1, 2)]) == [0]
    order = [keys(4)[i] for i in (3, 0, 1, 0)]
    assert np.array_equal(space.read(order), values(4)[[3, 0, 1, 0]])
    if on_disk:
        again = FeatureStore(tmp_path).space(**DESCRIPTION)
        assert np.array_equal(again.read(order), values(4)[[3, 0, 1, 0]])


@pytest.mark.parametrize("change", DESCRIPTION)
def test_another_backbone_transform_or_view_is_another_space(tmp_path, change):
    store = FeatureStore(tmp_path)
    store.space(**DESCRIPTION).write(keys(1), values(1))
    other = {**DESCRIPTION, change: 4 if change == "dim" else "other"}
    assert store.space(**other).missing(keys(1)) == [0]
    half = FeatureStore(tmp_path, dtype="float16").space(**DESCRIPTION)
    assert half.missing(keys(1)) == [0]


def test_keys_that_end_in_zero_bytes(tmp_path):
    odd = [b"\x01" * 15 + b"\0", b"\x01" * 14 + b"\0\0", b"\0" * 16]
    FeatureStore(tmp_path).space(**DESCRIPTION).write(odd, values(3))
    space = FeatureStore(tmp_path).space(**DESCRIPTION)
    assert space.missing(odd) == [] and np.array_equal(space.read(odd), values(3))


def test_float16_halves_the_size_and_refuses_what_overflows(tmp_path):
    space = FeatureStore(tmp_path, dtype="float16").space(**DESCRIPTION)
    space.write(keys(1), np.array([[1.0, 2.0, 0.1]], np.float32))
    assert np.allclose(space.read(keys(1)), [[1, 2, 0.1]], atol=1e-4)
    with pytest.raises(StoreError, match="too large for float16"):
        space.write(keys(1, 5), np.array([[1e6, 0, 0]], np.float32))
    with pytest.raises(StoreError, match="dtype='int8'"):
        FeatureStore(tmp_path, dtype="int8")


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "noise"])
def test_a_damaged_shard_is_named_taken_away_and_rebuilt(tmp_path, damage):
    FeatureStore(tmp_path).space(**DESCRIPTION).write(keys(2), values(2))
    FeatureStore(tmp_path).space(**DESCRIPTION).write(keys(1, 2), values(1, 2))
    shard = max(tmp_path.glob("*/shard-*.npy"), key=lambda p: p.stat().st_size)
    raw = bytearray(shard.read_bytes())
    if damage == "flip":
        raw[-1] ^= 1
    shard.write_bytes(
        {"flip": bytes(raw), "truncate": bytes(raw[:-7]), "empty": b"", "noise": b"\xff" * 99}[
            damage
        ]
    )
    with pytest.warns(UserWarning, match=shard.name):
        space = FeatureStore(tmp_path).space(**DESCRIPTION)
    assert space.missing(keys(3)) == [0, 1]
    space.write(keys(2), values(2))
    assert np.array_equal(FeatureStore(tmp_path).space(**DESCRIPTION).read(keys(3)), values(3))


@contextmanager
def one_more_file():
    """Let this process open one more file, and no second one: mapping a file takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_shard_that_can_not_be_opened_is_named_and_kept(tmp_path, capsys):
    FeatureStore(tmp_path).space(**DESCRIPTION).write(keys(2), values(2))
    shard = next(tmp_path.glob("*/shard-*.npy"))
    with one_more_file():
        with pytest.raises(StoreError, match=rf"{shard.name} can't be read .*Too many open files"):
            FeatureStore(tmp_path).space(**DESCRIPTION)
        assert main(["--root", str(tmp_path), "verify"]) == 1
        assert "0 shards are whole, 0 damaged, 1 can't be read" in capsys.readouterr().out
        assert main(["--root", str(tmp_path), "prune"]) == 1
        assert f"{shard} can't be read" in capsys.readouterr().err
    again = FeatureStore(tmp_path).space(**DESCRIPTION)
    assert np.array_equal(again.read(keys(2)), values(2))
    assert main(["--root", str(tmp_path), "verify"]) == 0


def test_shards_that_are_merged_while_they_are_read_are_not_called_damaged(tmp_path, monkeypatch):
    other = FeatureStore(tmp_path).space(**DESCRIPTION)
    for i in range(5):
        other.write(keys(1, i), values(1, i))
    open_shard, calls = store_module.open_shard, []

    def late(path, record=None):
        calls.append(path)
        if len(calls) == 3:  # after the files were listed
            other.merge(most=2)
        return open_shard(path, record)

    monkeypatch.setattr(store_module, "open_shard", late)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        space = FeatureStore(tmp_path).space(**DESCRIPTION)
    assert len(list(tmp_path.glob("*/shard-*.npy"))) == 1
    assert np.array_equal(space.read(keys(5)), values(5))


def test_a_full_disk_is_a_clear_error_and_leaves_the_store_valid(tmp_path, monkeypatch):
    space = FeatureStore(tmp_path).space(**DESCRIPTION)
    space.write(keys(2), values(2))

    def full(path, shard):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "_save", full)
    with pytest.raises(StoreError, match=r"No space left.*TOSCA_CACHE"):
        space.write(keys(1, 7), values(1, 7))
    monkeypatch.undo()
    again = FeatureStore(tmp_path).space(**DESCRIPTION)
    assert again.missing(keys(2)) == [] and again.missing(keys(1, 7)) == [0]
    assert not list(tmp_path.rglob("*.tmp"))


def test_many_small_shards_become_one(tmp_path):
    store = FeatureStore(tmp_path)
    space = store.space(**DESCRIPTION)
    for i in range(70):
        with space.extraction():
            space.write(keys(1, i), values(1, i))
    assert len(list(tmp_path.glob("*/shard-*.npy"))) < 10
    for reader in (space, FeatureStore(tmp_path).space(**DESCRIPTION)):
        assert np.array_equal(reader.read(keys(70)), values(70))


# ---- extraction


def data_and_keys(n=30):
    data = blobs(3, n // 3, 0)
    return data, [image_key(x) for x in data.tensors[0]]


def space_of(backbone, root):
    return FeatureStore(root).space(
        **{**DESCRIPTION, "dim": 32, "fingerprint": backbone.fingerprint}
    )


def test_each_image_passes_once(tmp_path):
    data, names = data_and_keys()
    data.tensors[0][7] = data.tensors[0][3]  # the same image twice is one pass
    names[7] = names[3]
    backbone = load_backbone(TinyNet())
    z = stored_features(backbone, data, names, space_of(backbone, tmp_path))
    torch.testing.assert_close(z, backbone.module(data.tensors[0]))
    assert backbone.images_passed == 29
    again = stored_features(backbone, data, names, space_of(backbone, tmp_path))
    assert backbone.images_passed == 29 and torch.equal(z, again)


def test_an_interrupted_extraction_goes_on_where_it_stopped(tmp_path, monkeypatch):
    data, names = data_and_keys()
    backbone = load_backbone(TinyNet())
    monkeypatch.setattr(extract, "SHARD_IMAGES", 8)
    forward, calls = backbone.module.forward, []

    def failing(x):
        calls.append(len(x))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return forward(x)

    backbone.module.forward = failing
    with pytest.raises(KeyboardInterrupt):
        stored_features(backbone, data, names, space_of(backbone, tmp_path), batch_size=5)
    del backbone.module.forward
    assert len(space_of(backbone, tmp_path).missing(names)) == 15  # three batches of five are kept
    before = backbone.images_passed
    z = stored_features(backbone, data, names, space_of(backbone, tmp_path), batch_size=5)
    assert backbone.images_passed - before == 15
    torch.testing.assert_close(z, backbone.module(data.tensors[0]))


class Slow(TinyNet):
    def forward(self, x):
        time.sleep(0.3)
        return super().forward(x)


def extract_in_process(root, started, passed):
    torch.set_num_threads(1)
    extract.SHARD_IMAGES = 6
    backbone = load_backbone(Slow())
    data, names = data_and_keys()
    started.set()
    stored_features(backbone, data, names, space_of(backbone, root), batch_size=6)
    passed.value = backbone.images_passed


def two_processes(root):
    context = multiprocessing.get_context("spawn")
    out = []
    for _ in range(2):
        started, passed = context.Event(), context.Value("i", -1)
        process = context.Process(target=extract_in_process, args=(root, started, passed))
        process.start()
        out.append((process, started, passed))
    return out


def test_two_processes_share_the_work(tmp_path):
    both = two_processes(tmp_path)
    for process, _, _ in both:
        process.join(120)
    assert sorted(passed.value for _, _, passed in both) == [0, 30]


def test_a_killed_process_leaves_what_it_had_and_no_lock(tmp_path):
    first, second = two_processes(tmp_path)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("*/shard-*.npy")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(first[0].pid, signal.SIGKILL)
    first[0].join()
    second[0].join(120)
    backbone = load_backbone(Slow())
    data, names = data_and_keys()
    z = stored_features(backbone, data, names, space_of(backbone, tmp_path))
    assert backbone.images_passed == 0, "the second process must have finished the work"
    torch.testing.assert_close(z, TinyNet().eval()(data.tensors[0]).detach())


# ---- the command


def test_the_command(tmp_path, capsys):
    FeatureStore(tmp_path).space(**DESCRIPTION).write(keys(2), values(2))
    FeatureStore(tmp_path).space(**{**DESCRIPTION, "backbone": "old"}).write(keys(5), values(5))
    assert main(["--root", str(tmp_path), "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted((line.split()[0], line.split()[3]) for line in lines[1:]) == [
        ("b", "2"),
        ("old", "5"),
    ]
    assert main(["--root", str(tmp_path), "verify"]) == 0
    shard = next(tmp_path.glob("*/shard-*.npy"))
    shard.write_bytes(b"x")
    assert main(["--root", str(tmp_path), "verify"]) == 1
    assert str(shard) in capsys.readouterr().out
    main(["--root", str(tmp_path), "prune"])
    assert not shard.exists() and main(["--root", str(tmp_path), "verify"]) == 0
    for mark in tmp_path.glob("*/space.json"):
        if "old" in mark.read_text():
            os.utime(mark, (0, 0))
    main(["--root", str(tmp_path), "prune", "--older-than", "30"])
    assert len(list(tmp_path.glob("*/space.json"))) == 1
    main(["--root", str(tmp_path), "prune", "--all"])
    assert not list(tmp_path.glob("*/space.json"))
