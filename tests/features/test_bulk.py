"""Extraction of folders: shards, resuming, the same store that runs read."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks import folder
from tosca_avalanche.errors import StreamError, ToscaError
from tosca_avalanche.features import FeatureStore, eval_space, source_key
from tosca_avalanche.features.__main__ import main
from tosca_avalanche.features.bulk import Extractor, Job, extract_shard, files_of
from tosca_avalanche.images import read_image
from tosca_avalanche.strategies import SimpleCILStrategy

ROOT = Path(__file__).parents[2]
BACKBONE = {"name": "tiny_vit_64", "weights": "random"}


@pytest.fixture
def images(tmp_path):
    """Eleven files of several sizes, in two classes, train and test."""
    rng = np.random.default_rng(0)
    for i in range(11):
        side, name = ("test" if i > 7 else "train"), ("cat", "dog")[i % 2]
        path = tmp_path / "data" / side / name / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (20 + i, 30 - i, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    return tmp_path / "data"


def stored(root, paths):
    backbone = load_backbone(**BACKBONE)
    space = eval_space(backbone, FeatureStore(root))
    keys = [source_key(p, read_image) for p in paths]
    assert not space.missing(keys)
    return backbone, space.read(keys)


def test_shards_fill_one_store_which_a_run_then_reads(images, tmp_path):
    job = Job(BACKBONE, str(tmp_path / "store"), batch_size=4)
    tallies = [extract_shard(job, images, 3, shard) for shard in range(3)]
    assert [t.done for t in tallies] == [4, 4, 3] == [t.passed for t in tallies]
    backbone, found = stored(tmp_path / "store", files_of(images))
    one = torch.stack([backbone.transforms.eval(read_image(p)) for p in files_of(images)])
    assert np.allclose(found, backbone(one).numpy(), atol=1e-5)
    assert extract_shard(job, images).passed == 0
    fresh = load_backbone(**BACKBONE)
    benchmark = folder(str(images), fresh.transforms, classes_per_task=1)
    strategy = SimpleCILStrategy(fresh, store=FeatureStore(tmp_path / "store"))
    for i in range(2):
        strategy.train(benchmark.train_stream[i])
        strategy.eval(benchmark.test_stream[: i + 1])
    assert strategy.model.images_passed == 0


def test_an_interruption_keeps_what_has_passed(images, tmp_path):
    worker = Extractor(Job(BACKBONE, str(tmp_path / "store"), batch_size=2))

    def interrupt(n):
        if worker.backbone.images_passed >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.work(files_of(images), interrupt)
    again = Extractor(Job(BACKBONE, str(tmp_path / "store"), batch_size=2))
    tally = again.work(files_of(images))
    assert (tally.done, tally.passed) == (11, 7)


def test_files_that_can_not_be_decoded(images, tmp_path):
    bad = images / "train/cat/bad.png"
    bad.write_bytes(b"no picture")
    with pytest.raises(StreamError, match=r"bad\.png can't be decoded"):
        extract_shard(Job(BACKBONE, str(tmp_path / "store")), images)
    tally = extract_shard(Job(BACKBONE, str(tmp_path / "store"), skip_bad=True), images)
    assert tally.bad == [str(bad)] and tally.done == 11


def test_the_command(images, tmp_path, capsys):
    command = ["--root", str(tmp_path / "store"), "extract", "--backbone", "tiny_vit_64",
               "--weights", "random", "--data", str(images), "--device", "cpu"]  # fmt: skip
    assert main([*command, "--shards", "2", "--shard", "1"]) == 0
    assert "5 images are stored, 5 passed now" in capsys.readouterr().out
    assert main([*command, "--shards", "2", "--shard", "0"]) == 0
    out = capsys.readouterr().out
    assert "2 of 2 shards: 11 of 11 images" in out and "6 passed now" in out
    assert main([*command, "--shards", "2", "--shard", "2"]) == 1
    assert "pass 0 to 1" in capsys.readouterr().err
    assert main([*command[:-4], "--data", str(tmp_path / "none")]) == 1
    assert "holds no images" in capsys.readouterr().err
    assert main(["--root", str(tmp_path / "store"), "verify"]) == 0


def test_ray_that_is_not_there_is_named(images, tmp_path, monkeypatch):
    from tosca_avalanche.features.bulk import extract_on_ray

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ToscaError, match=r"pip install 'tosca_avalanche\[ray\]'"):
        extract_on_ray(Job(BACKBONE, str(tmp_path / "store")), images)


def test_a_job_means_the_same_in_another_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TOSCA_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("w.safetensors").touch()
    job = Job({"name": "tiny_vit_64", "weights": "w.safetensors"}, device="cuda", batch_size=3)
    there = job.anywhere()
    assert there.store == str(tmp_path / "cache" / "features")
    assert there.backbone == {"name": "tiny_vit_64", "weights": str(tmp_path / "w.safetensors")}
    assert (there.device, there.batch_size) == ("cuda", 3)
    assert Job({"name": "x", "weights": "random"}, "here").anywhere() == Job(
        {"name": "x", "weights": "random"}, str(tmp_path / "here")
    )


@pytest.mark.slow
def test_two_actors_of_ray(images, tmp_path):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("the extra ray is not installed")
    command = [sys.executable, "-m", "tosca_avalanche.features", "--root", str(tmp_path / "store"),
               "extract", "--backbone", "tiny_vit_64", "--weights", "random", "--data",
               str(images), "--ray", "--workers", "2", "--device", "cpu"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_worker_niceness": "0"}
    for passed in (11, 0):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=400, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(rf"11 images are stored, {passed} passed now", done.stdout)
    stored(tmp_path / "store", files_of(images))
    assert len(list((tmp_path / "store").rglob("shard-*.npy"))) == 1  # joined at the end
