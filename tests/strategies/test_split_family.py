"""Avalanche's own Split* benchmarks, on files in the layout that they expect."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from avalanche.benchmarks.classic import SplitMNIST

from tests.strategies.methods import FORGET, METHODS, NEED_A_VIT, make
from tosca_avalanche.plugins import AccuracyMatrixPlugin
from tosca_avalanche.seeding import seeded_globals

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


def idx(path, array):
    """Write an array in the idx format of MNIST."""
    head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    path.write_bytes(head + array.astype(np.uint8).tobytes())


@pytest.fixture
def mnist(tmp_path):
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (10, 28, 28))
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, n in (("train", 12), ("t10k", 4)):
        y = np.repeat(np.arange(10), n)
        noise = rng.integers(-60, 60, (len(y), 28, 28))
        idx(raw / f"{name}-images-idx3-ubyte", np.clip(pictures[y] + noise, 0, 255))
        idx(raw / f"{name}-labels-idx1-ubyte", y)
    return tmp_path


def flat():
    with seeded_globals(0):
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 32))


@pytest.mark.parametrize("method", [m for m in METHODS if m not in NEED_A_VIT])
@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("cache", [True, False])
def test_split_mnist(method, labels, cache, mnist):
    benchmark = SplitMNIST(5, return_task_id=labels, seed=1, dataset_root=mnist)
    module = flat()
    matrix = AccuracyMatrixPlugin()
    strategy = make(method, module, plugins=[matrix], cache=cache, store=None)
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[])
        strategy.eval(benchmark.test_stream)
    assert matrix.total[-1].tolist() == [8] * 5
    assert matrix.correct[-1].sum() > 10  # chance is 4 of 40


@pytest.mark.parametrize("method", [m for m in METHODS if m not in (*NEED_A_VIT, *FORGET)])
def test_each_image_passes_once(method, mnist):
    """SplitMNIST brings its own transforms; they are deterministic and so cached."""
    benchmark = SplitMNIST(5, return_task_id=False, seed=1, dataset_root=mnist)
    module = flat()
    strategy = make(method, module, store=None)
    strategy.train(benchmark.train_stream, eval_streams=[])
    strategy.eval(benchmark.test_stream)
    passed = strategy.model.images_passed
    assert passed - 160 in (0, 1), "each image once, and one to learn the width"
