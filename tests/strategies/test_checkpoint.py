"""Avalanche's own save_checkpoint and maybe_load_checkpoint on our strategies."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint
from avalanche.evaluation.metrics import accuracy_metrics, forgetting_metrics
from avalanche.logging import InteractiveLogger
from avalanche.training.plugins import EvaluationPlugin
from torch.optim import SGD

from tests.conftest import blobs
from tests.strategies.methods import METHODS, fresh, make
from tests.streams import classic, of_tasks
from tosca_avalanche import AccuracyMatrixPlugin, ProgressPlugin, TOSCAStrategy, load_backbone
from tosca_avalanche.errors import TrainingError

X = blobs(6, 9, 3).tensors[0]


def strategy_with_all():
    """TOSCA with everything that a user hangs on a strategy."""
    evaluator = EvaluationPlugin(
        accuracy_metrics(stream=True), forgetting_metrics(stream=True), loggers=InteractiveLogger()
    )
    plugins = [AccuracyMatrixPlugin(), ProgressPlugin()]
    return make("tosca", plugins=plugins, evaluator=evaluator, optimizer=lambda p: SGD(p, 0.1))


def matrix_of(strategy):
    return next(p for p in strategy.plugins if isinstance(p, AccuracyMatrixPlugin))


def third_task(strategy):
    """Train and test the third task; return all that can be compared."""
    benchmark = classic()
    strategy.train(benchmark.train_stream[2])
    metrics = strategy.eval(benchmark.test_stream)
    strategy.model.eval()
    return {
        "outputs": strategy.model(X).detach(),
        "state": strategy.model.state(),
        "cells": matrix_of(strategy).cells,
        "metrics": {k: v for k, v in metrics.items() if isinstance(v, float)},
    }


def test_resumed_in_a_new_process_is_bit_equal(tmp_path):
    benchmark, strategy = classic(), strategy_with_all()
    for experience in benchmark.train_stream[:2]:
        strategy.train(experience)
        strategy.eval(benchmark.test_stream)
    save_checkpoint(strategy, tmp_path / "task-2.pkl")
    code = (
        "import sys, torch\n"
        "from avalanche.checkpointing import maybe_load_checkpoint\n"
        "from tests.strategies.test_checkpoint import strategy_with_all, third_task\n"
        "strategy, done = maybe_load_checkpoint(strategy_with_all(), sys.argv[1])\n"
        "assert done == 2\n"
        "torch.save(third_task(strategy), sys.argv[2])\n"
    )
    files = [str(tmp_path / "task-2.pkl"), str(tmp_path / "third.pt")]
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code, *files], cwd=root, check=True, capture_output=True)
    resumed, whole = torch.load(files[1], weights_only=True), third_task(strategy)
    assert torch.equal(resumed["outputs"], whole["outputs"])
    tensors, rest = whole["state"]
    # how many images passed is left out: the other process has a feature store of its own
    assert resumed["state"][1]["task_classes"] == rest["task_classes"]
    assert resumed["state"][0].keys() == tensors.keys()
    assert all(torch.equal(resumed["state"][0][k], v) for k, v in tensors.items())
    assert resumed["cells"] == whole["cells"] and len(whole["cells"]) == 9
    assert resumed["metrics"] == whole["metrics"]
    assert any("Forgetting" in k for k in whole["metrics"])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_resumes(method, tmp_path):
    benchmark = of_tasks([[0, 1], [2, 3], [1, 4]])
    first = make(method, seed=3)
    for experience in benchmark.train_stream[:2]:
        first.train(experience, eval_streams=[])
    save_checkpoint(first, tmp_path / "c.pkl")
    second, done = maybe_load_checkpoint(make(method, seed=3), tmp_path / "c.pkl")
    assert done == 2 and second.model.classes == first.model.classes
    for strategy in (first, second):
        strategy.train(benchmark.train_stream[2], eval_streams=[])
        strategy.model.eval()
    assert torch.equal(first.model(X), second.model(X))


def test_the_backbone_and_the_images_stay_outside(tmp_path):
    backbone = load_backbone("tiny_vit_64", weights="random")
    images = blobs(4, 30, 1).tensors[0].repeat(1, 1, 16, 16)
    data = torch.utils.data.TensorDataset(images, blobs(4, 30, 1).tensors[1])
    data.targets = data.tensors[1].tolist()
    strategy = TOSCAStrategy(backbone, train_epochs=1, evaluator=None, store=None)
    strategy.train(of_tasks([[0, 1, 2, 3]], train=lambda *a, **k: data).train_stream[0])
    save_checkpoint(strategy, tmp_path / "c.pkl", exclude=["optimizer", "optimized_param_id"])
    module, rows = 4 * 192 * 12 + 3 * 192 + 12, 4 * 192
    assert (tmp_path / "c.pkl").stat().st_size < 4 * (module + rows) + 20_000
    new, _ = maybe_load_checkpoint(
        TOSCAStrategy(backbone, train_epochs=1, evaluator=None, store=None), tmp_path / "c.pkl"
    )
    assert new.model.backbone is backbone


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: make("simplecil"), "strategy is 'TOSCAStrategy' there, 'SimpleCILStrategy' here"),
        (lambda: make("tosca", seed=5), "seed is 0 there, 5 here"),
        (lambda: make("tosca", norm="pre"), "norm is 'post' there, 'pre' here"),
        (lambda: make("tosca", fresh("ease")), "backbone is 'TinyNet' there, 'TinyViT' here"),
    ],
)
def test_a_checkpoint_of_another_strategy_is_refused(other, message, tmp_path):
    strategy, benchmark = make("tosca"), of_tasks([[0, 1], [2]])
    strategy.train(benchmark.train_stream[0])
    save_checkpoint(strategy, tmp_path / "c.pkl")
    given, _ = maybe_load_checkpoint(other(), tmp_path / "c.pkl")
    for _ in range(2):  # and it stays refused
        with pytest.raises(TrainingError, match=message):
            given.train(benchmark.train_stream[1])


def test_without_a_strategy_there_is_no_backbone(tmp_path):
    import dill

    strategy = make("tosca")
    with pytest.raises(TrainingError, match="maybe_load_checkpoint"):
        _ = dill.loads(dill.dumps(strategy)).model


def test_no_file_yet_and_copies():
    strategy = make("tosca")
    assert maybe_load_checkpoint(strategy, "/nowhere/c.pkl") == (strategy, 0)
    strategy.train(of_tasks([[0, 1]]).train_stream[0])
    for other in (copy.copy(strategy), copy.deepcopy(strategy)):
        assert torch.equal(other.model.eval()(X), strategy.model.eval()(X))


def test_classes_of_a_script(tmp_path):
    """A strategy and a plugin that no import can find, as in a notebook."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint\n"
        "from avalanche.core import SupervisedPlugin\n"
        "from tests.strategies.methods import fresh\n"
        "from tests.streams import classic\n"
        "from tosca_avalanche import TOSCAStrategy\n"
        "class Mine(TOSCAStrategy):\n"
        "    pass\n"
        "class Counter(SupervisedPlugin):\n"
        "    n = 0\n"
        "    def after_training_exp(self, strategy, **kwargs):\n"
        "        self.n += 1\n"
        "new = Mine(fresh('tosca'), plugins=[Counter()], evaluator=None, train_epochs=1)\n"
        "mine, done = maybe_load_checkpoint(new, sys.argv[1])\n"
        "assert mine.plugins[0].n == done\n"
        "mine.train(classic().train_stream[done])\n"
        "save_checkpoint(mine, sys.argv[1])\n"
        "print(done, mine.model.n_tasks)\n"
    )
    root = Path(__file__).parents[2]
    for line in ("0 1", "1 2"):
        out = subprocess.run(
            [sys.executable, str(script), str(tmp_path / "c.pkl")],
            capture_output=True, text=True, check=True, cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
        )  # fmt: skip
        assert out.stdout.splitlines()[-1] == line
