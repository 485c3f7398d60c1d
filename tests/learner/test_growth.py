"""The hundredth task is added and saved for the price of the first; a failed one leaves nothing."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.conftest import TinyNet
from tests.learner.models import QUICK, add, images, learned, load, same
from tosca_avalanche import ToscaClassifier, ToscaNet, load_backbone
from tosca_avalanche.errors import ModelError
from tosca_avalanche.learner import folder as folders
from tosca_avalanche.modules.tosca_net import ROUTED

pytestmark = pytest.mark.filterwarnings("ignore:.*cross-entropy is 0")
ROUTER = {**ROUTED, "projection": 20}
D = 192
MODULE = 4 * (4 * D * (D // 16) + 3 * D + D // 16)
# a class's head row, sum and count, column of the ridge, and lines of the manifest
SMALL = 4 * D + 8 * (D + 1) + 4 * 20 + 500


class Passing(torch.nn.Module):
    embed_dim = D

    def forward(self, x):
        return x + 0.0


class Copies(TorchDispatchMode):
    """Counts the bytes that are cloned or copied."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.clone.default, torch.ops.aten.copy_.default):
            self.bytes += out.numel() * out.element_size()
        return out


@pytest.mark.parametrize("settings", [{}, ROUTER], ids=["paper", "routed"])
def test_adding_and_saving_cost_the_same_for_every_task(tmp_path, monkeypatch, settings):
    model = ToscaClassifier(load_backbone(Passing()), **{**QUICK, "epochs": 1, **settings})
    hashed, sha256 = [], folders._sha256
    monkeypatch.setattr(folders, "_sha256", lambda data: hashed.append(len(data)) or sha256(data))
    draws = torch.Generator().manual_seed(0)
    added, saved, hashes, written = [], [], [], []
    for t in range(24):
        with Copies() as copies:
            model.add_task(torch.randn(6, D, generator=draws) + t, [t] * 6)
        added.append(copies.bytes)
        old = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in tmp_path.iterdir()}
        hashed.clear()
        with Copies() as copies:
            model.save(tmp_path)
        saved.append(copies.bytes)
        hashes.append(sum(hashed))
        new = [p for p in tmp_path.iterdir() if (p.stat().st_ino, p.stat().st_mtime_ns)
               != old.get(p.name)]  # fmt: skip
        assert {p.name.split("-")[0] for p in new} <= {"task", "shared", "model.json", ".lock"}
        assert len([p for p in new if p.name.startswith("task")]) == 1
        written.append(sum(p.stat().st_size for p in new))
    for costs, often in ((added, 1), (saved, 1), (written, 1), (hashes, 4)):
        growth = (costs[-1] - costs[3]) / (len(costs) - 4)
        assert growth <= often * SMALL < MODULE, costs
    assert same(ToscaClassifier.load(tmp_path, Passing(), store=None), model)


@pytest.mark.parametrize("after", [False, True], ids=["before the end", "after it"])
@pytest.mark.parametrize("settings", [
    {}, {"old_rows": "trainable"}, {"head_init": "prototype", "sparsity": "proximal"}, ROUTER,
], ids=str)  # fmt: skip
def test_a_task_that_fails_leaves_nothing(monkeypatch, settings, after):
    """Task 2 has a class of task 0 again; it fails when all of it is learned."""
    model, finish = learned(2, **settings), ToscaNet.finish_task
    wanted = model.predict_proba(images())

    def interrupted(net, prototypes):
        if after:
            finish(net, prototypes)
        raise KeyboardInterrupt

    for t in (2, 2):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(ToscaNet, "finish_task", interrupted)
            add(model, t)
        assert same(model, learned(2, **settings))
        assert np.array_equal(model.predict_proba(images()), wanted)
    add(model, 2)
    assert same(model, learned(3, **settings))
    empty = ToscaClassifier(load_backbone(TinyNet()), **{**QUICK, **settings})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ToscaNet, "finish_task", interrupted)
        add(empty, 0)
    assert empty.n_tasks == 0
    add(empty, 0)
    assert same(empty, learned(1, **settings))


def names(place):
    return {p.name for p in place.glob("task-*")}


def test_a_class_again_rewrites_the_file_it_came_in(tmp_path):
    """Its products stand with its first task and have grown; loading gives the same router."""
    model = learned(2, **ROUTER).save(tmp_path)
    before = names(tmp_path)
    add(model, 2)
    model.save(tmp_path)
    assert len(names(tmp_path)) == 3 and len(before & names(tmp_path)) == 1
    assert same(load(tmp_path), model)
    assert np.array_equal(load(tmp_path).predict_proba(images()), model.predict_proba(images()))


def test_products_in_the_shared_file_are_read_as_well(tmp_path, monkeypatch):
    """As they were written before they stood with their tasks."""
    with monkeypatch.context() as patch:
        patch.setattr(ToscaNet, "class_parts", ("none",))
        model = learned(2, **ROUTER).save(tmp_path)
    loaded = load(tmp_path)
    assert same(loaded, model)
    add(loaded, 2)
    loaded.save(tmp_path)
    assert same(load(tmp_path), learned(3, **ROUTER))


def test_what_was_changed_by_hand_is_written_anew(tmp_path):
    learned(2).save(tmp_path / "a")
    for model in (learned(2), load(tmp_path / "a")):
        model.save(tmp_path / "a", overwrite=True)
        before = names(tmp_path / "a")
        with torch.no_grad():
            model.net.bank.luca[0].W1.mul_(0.5)
        model.save(tmp_path / "a")
        assert len(names(tmp_path / "a") & before) == 1 and same(load(tmp_path / "a"), model)
        model.net.head.frozen_rows = model.net.head.frozen_rows * 2
        model.save(tmp_path / "a")
        assert same(load(tmp_path / "a"), model)
        model.save(tmp_path / "b", overwrite=True)
        assert same(load(tmp_path / "b"), model), "another folder gets every file"


def test_a_file_altered_on_disk_is_found_when_it_is_loaded(tmp_path):
    model = learned(1).save(tmp_path)
    [path] = tmp_path.glob("task-*")
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    add(model, 1)
    model.save(tmp_path)
    with pytest.raises(ModelError, match=f"{path.name} was altered"):
        load(tmp_path)
    model.save(tmp_path, overwrite=True)
    assert same(load(tmp_path), model), "overwrite trusts nothing that is there"
    path.unlink()
    add(model, 2)
    model.save(tmp_path)
    assert same(load(tmp_path), model), "a file that is gone is written anew"
