"""A model folder: whole or as before, checked when it is read, and readable by later versions."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets

from tests.conftest import TinyNet
from tests.learner.models import QUICK, add, images, learned, load, same
from tests.learner.pictures import pictures
from tosca_avalanche import ToscaClassifier, TOSCAStrategy, load_backbone
from tosca_avalanche.benchmarks.class_incremental import LabelledImages, as_is, with_transforms
from tosca_avalanche.errors import ModelError
from tosca_avalanche.learner import editing, read_manifest

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")
KEPT = Path(__file__).parent / "model_v1"


@pytest.mark.parametrize("old_rows", ["frozen", "trainable"])
def test_what_is_loaded_answers_and_learns_on_as_before(tmp_path, old_rows):
    model = learned(2, old_rows=old_rows).save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert same(model, loaded) and loaded.get_params()["epochs"] == 3
    assert np.array_equal(loaded.predict_proba(images()), model.predict_proba(images()))
    assert loaded.class_names == model.class_names == ["ant", "bee", "cat", "dog", "emu"]
    for one in (model, loaded):
        add(one, 2)
    assert same(model, loaded), "learning goes on bit by bit the same"
    assert same(loaded.remove_task(2), learned(2, old_rows=old_rows)) or old_rows == "trainable"


def test_adding_a_task_rewrites_no_earlier_file(tmp_path):
    model = learned(1).save(tmp_path)
    times = {}
    for t in (1, 2):
        before = {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in tmp_path.glob("task-*")}
        add(model, t)
        model.save(tmp_path)
        after = {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in tmp_path.glob("task-*")}
        assert len(after) == t + 1 and before.items() <= after.items()
        times |= after
    assert len(list(tmp_path.glob("shared-*"))) == 1 and len(times) == 3
    assert all(p.suffix in (".safetensors", ".json", "") for p in tmp_path.iterdir())
    model.remove_task(1).save(tmp_path)
    assert len(list(tmp_path.glob("task-*"))) == 2
    assert np.array_equal(load(tmp_path).predict(images()), model.predict(images()))


def test_the_strategy_writes_and_reads_the_same_folder(tmp_path):
    sets = [pictures(c, seed=t, size=4) for t, c in enumerate(([0, 1, 2], [3, 4], [1, 5]))]
    backbone = load_backbone(TinyNet())
    stream = benchmark_from_datasets(
        train=[
            with_transforms(LabelledImages(x, y.tolist(), as_is), backbone.transforms, False)
            for x, y in sets
        ]
    ).train_stream
    options = {"train_epochs": 3, "train_mb_size": 8, "lr": 0.1, "seed": 4, "evaluator": None}
    strategy = TOSCAStrategy(backbone, **options)
    model = ToscaClassifier(load_backbone(TinyNet()), **QUICK)
    for experience, (x, y) in list(zip(stream, sets, strict=True))[:2]:
        strategy.train(experience, eval_streams=[])
        strategy.save(tmp_path / "s", names=[*"abcdef"])
        model.add_task(x, y).save(tmp_path / "c")
    files = {p.name for p in (tmp_path / "s").glob("*.safetensors")}
    assert files == {p.name for p in (tmp_path / "c").glob("*.safetensors")}
    loaded = load(tmp_path / "s")
    assert loaded.class_names == [*"abcde"] and loaded.classes_.tolist() == [0, 1, 2, 3, 4]
    again = TOSCAStrategy.load(tmp_path / "c", TinyNet(), evaluator=None, selection="entropy-batch")
    assert again.train_epochs == 3 and again.model.selection == "entropy-batch"
    again.train(stream[2], eval_streams=[])
    again.save(tmp_path / "c")
    strategy.train(stream[2], eval_streams=[])
    assert same(load(tmp_path / "c"), model.add_task(*sets[2]))
    ours, theirs = again.model.state()[0], strategy.model.state()[0]
    assert all(torch.equal(ours[k], theirs[k]) for k in theirs)
    with pytest.raises(ValueError, match="names"):
        strategy.save(tmp_path / "s", names=["a"])


def test_damage_is_named(tmp_path):
    learned(2).save(tmp_path / "whole")
    victims = [p.name for p in (tmp_path / "whole").glob("*.safetensors")]
    assert len(victims) == 3
    for name in victims:
        shutil.copytree(tmp_path / "whole", tmp_path / name)
        path = tmp_path / name / name
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(ModelError, match=f"{name} was altered"):
            load(tmp_path / name)
        path.unlink()
        with pytest.raises(ModelError, match=f"{name} is missing"):
            load(tmp_path / name)
    with pytest.raises(ModelError, match="holds no model"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "format version 2.*reads up to 1"),
        ({"format": "x"}, "no manifest of a model"),
        ({"settings": {"colour": 1}}, "settings 'colour'"),
        ({"tasks": [{"file": "../x.safetensors", "sha256": "", "classes": []}]}, "no file of a"),
        ({"labels": None}, "has no 'labels'"),
        ({}, "no manifest"),
    ],
)
def test_a_manifest_that_does_not_fit_is_named(tmp_path, change, message):
    learned(1).save(tmp_path)
    path = tmp_path / "model.json"
    manifest = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({k: v for k, v in manifest.items() if v is not None}))
    if not change:
        path.write_text("{")
    with pytest.raises(ModelError, match=message):
        load(tmp_path)


def test_another_backbone_is_refused(tmp_path):
    learned(1).save(tmp_path)
    other = TinyNet()
    other.linear.bias.data[0] += 1e-3
    with pytest.raises(ModelError, match="fingerprint"):
        ToscaClassifier.load(tmp_path, other)
    with pytest.raises(ModelError, match=r"'TinyNet'.*pass backbone="):
        ToscaClassifier.load(tmp_path)
    ToscaClassifier(load_backbone("tiny_vit_64", weights="random"), **QUICK).save(tmp_path / "r")
    assert ToscaClassifier.load(tmp_path / "r").n_tasks == 0


def test_what_another_one_saved_is_not_lost(tmp_path):
    first, second = learned(1).save(tmp_path), load(tmp_path)
    add(second, 1)
    second.save(tmp_path)
    with pytest.raises(ModelError, match="another process"):
        first.save(tmp_path)
    with pytest.raises(ModelError, match="another model"):
        learned(1, seed=9).save(tmp_path)
    assert load(tmp_path).n_tasks == 2
    first.save(tmp_path, overwrite=True)
    assert load(tmp_path).n_tasks == 1 and len(list(tmp_path.glob("task-*"))) == 1


def save_and_die(model, place, step):
    """Save, and be killed before the file number ``step`` gets its name, or at the end."""
    rename, done = os.replace, []

    def replace(source, target):
        if len(done) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)
        done.append(target)

    os.replace = replace
    model.save(place)
    os.kill(os.getpid(), signal.SIGKILL)


def test_killed_at_any_point_of_saving_the_model_is_the_old_or_the_new_one(tmp_path):
    old = learned(1).save(tmp_path / "old")
    files = {p.name: p.read_bytes() for p in (tmp_path / "old").iterdir()}
    tasks = []
    for step in range(4):
        place = shutil.copytree(tmp_path / "old", tmp_path / str(step))
        model = load(place)
        add(model, 1)
        process = multiprocessing.get_context("fork").Process(
            target=save_and_die, args=(model, place, step)
        )
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        loaded = load(place)
        tasks.append(loaded.n_tasks)
        if loaded.n_tasks == 1:
            assert same(loaded, old)
            kept = {p.name: p.read_bytes() for p in place.iterdir()}
            assert files.items() <= kept.items(), "no earlier file was touched"
            assert len(kept) > len(files)
        add(loaded, loaded.n_tasks)
        loaded.save(place)
        names = [p.name.split("-")[0] for p in place.iterdir()]
        wanted = [".lock", "model.json", "shared", *["task"] * loaded.n_tasks]
        assert sorted(names) == wanted, "leftovers are cleared away"
        assert same(load(place), learned(loaded.n_tasks))
    assert tasks == [1, 1, 1, 2], "two files, then the manifest"


def test_a_reader_meets_a_writer(tmp_path, monkeypatch):
    """The file that goes with the old manifest vanishes while it is read: the new one is taken."""
    from tosca_avalanche.learner import folder

    model = learned(1).save(tmp_path)
    read, calls = folder._read_tensors, []

    def late(place, entry):
        if not calls:
            calls.append(add(model, 1))
            model.save(tmp_path)
        return read(place, entry)

    monkeypatch.setattr(folder, "_read_tensors", late)
    assert load(tmp_path).n_tasks == 2


def test_two_processes_add_one_after_the_other(tmp_path):
    """The second one stands before the lock while the first one edits, and then sees its work."""
    learned(1).save(tmp_path)
    code = (
        "import sys\n"
        "from tests.learner.models import add, load\n"
        "from tosca_avalanche.learner import editing\n"
        "print('ready', flush=True)\n"
        "with editing(sys.argv[1]):\n"
        "    print('in', flush=True)\n"
        "    model = load(sys.argv[1]); add(model, 1); model.save(sys.argv[1])\n"
    )
    with editing(tmp_path):
        waiting = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert waiting.stdout.readline() == "ready\n"
        said = []
        reader = threading.Thread(target=lambda: said.append(waiting.stdout.readline()))
        reader.start()
        reader.join(2)
        assert not said, "it went in although the folder was being edited"
        model = load(tmp_path)
        add(model, 2)
        model.save(tmp_path)
    reader.join(120)
    assert said == ["in\n"] and waiting.wait(120) == 0
    assert load(tmp_path).task_labels == [["cat", "dog", "emu"], ["dog", "fox"], ["ant", "bee"]]
    with pytest.raises(ModelError), editing(tmp_path / "nothing"):
        pass


def test_the_kept_model_of_version_1_loads_and_answers():
    """Written by the first version that could; never to be written anew."""
    assert read_manifest(KEPT)[0]["format_version"] == 1
    recorded = json.loads((KEPT / "recorded.json").read_text())
    model = ToscaClassifier.load(KEPT, store=None)
    x = pictures([0, 1, 2, 3], per_class=2, seed=5)[0]
    assert model.classes_.tolist() == recorded["classes"]
    assert model.class_names == recorded["names"]
    z = torch.tensor(recorded["features"])
    assert model.predict(z).tolist() == recorded["labels"]
    np.testing.assert_allclose(model.predict_proba(z), recorded["probabilities"], atol=1e-5)
    assert [model.explain(one[None]).module for one in z] == recorded["modules"]
    # resizing may differ in the last bit between versions of Pillow
    torch.testing.assert_close(model.features(x), z, atol=0.05, rtol=0.05)
    model.add_task(x[:4], ["owl", "owl", "elk", "elk"])
    assert model.n_tasks == 3
