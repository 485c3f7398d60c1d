"""Every file that is read, damaged: an error that names it, soon and in little memory."""

from __future__ import annotations

import io
import shutil
import struct
import tarfile
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from experiments import identity
from experiments.config import compose, register_configs, to_settings
from tests.damage import damaged, survives
from tests.learner.models import images, learned, load
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks.archive import opened
from tosca_avalanche.errors import BackboneError, RecordError, StoreError, StreamError
from tosca_avalanche.features import FeatureStore
from tosca_avalanche.features.store import spaces
from tosca_avalanche.files import read_json
from tosca_avalanche.images import read_image
from tosca_avalanche.learner import read_manifest

register_configs()


def picture(form):
    noise = np.random.default_rng(3).integers(0, 255, (24, 20, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, form)
    return file.getvalue()


@pytest.mark.parametrize("form", ["png", "jpeg", "gif", "bmp", "webp", "tiff", "ppm"])
def test_images(form, tmp_path):
    """Pixels may be others: image formats have no checksum, but never a crash or a bomb."""
    path = tmp_path / f"x.{form}"
    path.write_bytes(picture(form))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, about odd headers
        outcomes = survives(lambda: read_image(path), path, lambda i: i.mode == "RGB", range(120))
    assert "refused" in outcomes


@pytest.mark.parametrize("side", [60_000, 2**31 - 1])
def test_a_png_that_claims_a_huge_size(side, tmp_path):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(
            ">I", zlib.crc32(kind + data)
        )  # fmt: skip

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    with pytest.raises(StreamError, match=r"bomb\.png can't be decoded"):
        read_image(tmp_path / "bomb.png")


@pytest.mark.parametrize(
    ("packing", "form"),
    [
        ("", tarfile.USTAR_FORMAT),
        ("", tarfile.GNU_FORMAT),
        *((packing, tarfile.PAX_FORMAT) for packing in ("", "gz", "bz2", "xz")),
    ],
)
def test_tars(packing, form, tmp_path, monkeypatch):
    """Never fewer images than were packed; bytes of an image in a plain tar have no checksum."""
    monkeypatch.setenv("TOSCA_CACHE", str(tmp_path / "cache"))
    path = tmp_path / f"x.tar.{packing}"
    with tarfile.open(path, f"w:{packing}", format=form) as tar:
        for i in range(8):
            member = tarfile.TarInfo(f"ant/{'long' * 20 * (i == 5)}{i}.png")
            member.size = 700
            tar.addfile(member, io.BytesIO(np.random.default_rng(i).bytes(700)))

    def read():
        listed = identity._members.__wrapped__(path, 0)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        return listed, sorted(p for p in opened(path).rglob("*") if p.is_file())

    outcomes = survives(read, path, lambda r: len(r[0]) == len(r[1]) == 8, range(120))
    assert outcomes.count("refused") > 60
    whole = path.read_bytes()
    used = -(-len(whole.rstrip(b"\0")) // 512) * 512  # without the zeros at the end
    for end in [*range(511, len(whole), 512), *range(512, len(whole), 512)]:
        path.write_bytes(whole[:end])
        if not packing and end >= used + 512:
            assert len(read()[1]) == 8
        else:
            with pytest.raises(StreamError, match=r"x\.tar"):
                read()


def test_a_tar_with_a_hole_or_without_an_end_is_not_read_as_a_shorter_one(tmp_path, monkeypatch):
    monkeypatch.setenv("TOSCA_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(3):
            tar.addfile(tarfile.TarInfo(f"{i}.png"))
    whole = path.read_bytes()
    for data, said in [
        (whole[:512] + bytes(512) + whole[1024:], "after 1 members it is damaged"),
        (whole[:1536], "cut short after 3 members"),
        (whole[:1100], "cut short after 2 members|after 2 members it is damaged"),
    ]:
        path.write_bytes(data)
        with pytest.raises(StreamError, match=said):
            opened(path)
        with pytest.raises(StreamError, match=said):
            identity.contents(path)
        assert not [*(tmp_path / "cache/streams").glob("*/*")], "nothing of it is left"
    path.write_bytes(whole[: 1536 + 512])
    assert len([*opened(path).iterdir()]) == 3, "one block of zeros is an end"


def test_a_model_folder(tmp_path):
    model = learned(2).save(tmp_path)
    answers = model.predict_proba(images()).tobytes(), model.class_names

    def same(found):
        return (found.predict_proba(images()).tobytes(), found.class_names) == answers

    tensors = sorted(tmp_path.glob("*.safetensors"))
    for path in tensors:
        assert {"refused"} == {*survives(lambda: load(tmp_path), path, same, range(12))}
    manifest = tmp_path / "model.json"
    # a damaged name of a file is an error that names both
    outcomes = survives(lambda: load(tmp_path), manifest, same, range(120), names="model.json")
    assert outcomes.count("refused") > 100


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "null", '{"a": ' + "9" * 5000 + "}"])
def test_json_that_is_none_of_ours(text, tmp_path):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(Exception, match=r"model\.json") as raised:
        read_manifest(tmp_path)
    assert raised.type.__module__ == "tosca_avalanche.errors"
    if text != "{}":
        with pytest.raises(RecordError, match=r"model\.json"):
            read_json(tmp_path / "model.json")


def test_the_feature_store(tmp_path):
    """A damaged shard is said, taken away, and its images count as missing."""
    description = {"backbone": "b", "fingerprint": "f", "transform": "t", "view": "eval", "dim": 5}
    keys = [bytes([i]) * 16 for i in range(20)]
    values = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    FeatureStore(tmp_path).space(**description).write(keys, values)
    shard = next(tmp_path.glob("*/shard-*.npy"))
    whole = shard.read_bytes()
    for seed in range(120):
        data = damaged(whole, seed)
        if data == whole:
            continue
        shard.write_bytes(data)
        with pytest.warns(UserWarning, match=shard.name):
            space = FeatureStore(tmp_path).space(**description)
        assert len(space) == 0 and len(space.missing(keys)) == 20 and not shard.exists()
    huge = whole.replace(b"(20,)", b"(2" + b"0" * 11 + b",)", 1)
    assert huge != whole
    shard.write_bytes(huge)
    with pytest.warns(UserWarning, match=shard.name):
        FeatureStore(tmp_path).space(**description)
    FeatureStore(tmp_path).space(**description).write(keys, values)
    mark = next(tmp_path.glob("*/space.json"))
    kept = mark.read_bytes()
    for seed in range(60):
        mark.write_bytes(damaged(kept, seed))
        try:
            (found,) = spaces(tmp_path)
        except StoreError as error:
            assert str(mark) in str(error)
        else:
            assert found["bytes"] > 0
        assert np.array_equal(FeatureStore(tmp_path).space(**description).read(keys), values)
    mark.write_bytes(kept)


def test_weights_of_a_backbone(tmp_path):
    """A file of the user's own has no checksum: other numbers load, another shape never does."""
    own = load_backbone("tiny_vit_64", weights="random")
    path = tmp_path / "w.safetensors"
    tensors = {k: v.half() for k, v in own.module.state_dict().items()}
    save_file(tensors, path)
    whole = path.read_bytes()
    for seed in range(24):
        data = damaged(whole, seed if seed % 6 != 1 else seed + 1)
        path.write_bytes(data)
        if len(data) == len(whole) and data[:8] == whole[:8]:
            continue
        with pytest.raises(BackboneError, match=r"w\.safetensors"):
            load_backbone("tiny_vit_64", weights=path)
    for size in (2**40, 2**63):
        path.write_bytes(struct.pack("<Q", size) + whole[8:])
        with pytest.raises(BackboneError, match=r"w\.safetensors"):
            load_backbone("tiny_vit_64", weights=path)


def test_configurations():
    """Words of a command line with letters lost, swapped or foreign."""
    words = ["method=tosca", "method.lr=0.025", "stream.classes_per_task=[4,4,2]", "seed=1993"]
    kept = to_settings(compose(words))
    refused = 0
    for seed in range(9):
        text = damaged(words[seed % 4].encode(), seed).decode("latin-1")
        try:
            found = to_settings(compose([*words[: seed % 4], text, *words[seed % 4 + 1 :]]))
        except ValueError as error:
            refused += 1
            assert len(str(error)) > 10
        else:
            assert found.keys() == kept.keys()
    assert refused > 4
    for text in ("method.lr=${nothing}", "method.lr=${oc.env:NO_SUCH_THING}", "seed=1e999"):
        with pytest.raises(ValueError):
            to_settings(compose([text]))
