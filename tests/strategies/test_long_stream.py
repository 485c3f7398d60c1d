"""Hundreds of tasks of one class: the five-hundredth costs what the first did."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
import warnings

import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_classification_dataset
from torch.utils.data import TensorDataset

from tests.strategies.methods import make
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks import find_stream
from tosca_avalanche.features import feature_batches

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in ("No loggers", ".*cross-entropy is 0", ".*Gram matrix", "all ", ".*scale sigma")
]
D, ROW, LUCA = 192, 192 * 4, 4 * 192 * 12 + 3 * 192 + 12
# bytes of one more task of one class: what the method says it keeps, and no more
KEEPS = {
    "tosca": 4 * LUCA + ROW,
    "tosca_routed": 4 * LUCA + ROW + 8 * (D + 1) + 4 * D * D + 4 * 100,
    "simplecil": 8 * (D + 1),
    "slda": 8 * (D + 1),
}


class Passing(torch.nn.Module):
    """Takes features for images."""

    embed_dim = D

    def forward(self, x):
        return x + 0.0


def glyph_features(tasks, per_class=4):
    """One experience per character: its features [4, 192]."""
    backbone = load_backbone("tiny_vit_64")
    stream = find_stream("glyphs")(
        transforms=backbone.transforms, n_classes=tasks, classes_per_task=tasks,
        train_per_class=per_class, test_per_class=0, class_order_seed=None,
    ).train_stream[0].dataset.eval()  # fmt: skip
    with torch.no_grad():
        z, y = (torch.cat(part) for part in zip(*feature_batches(backbone, stream), strict=True))
    sets = []
    for label in range(tasks):
        data = TensorDataset(z[y == label], y[y == label])
        data.targets = data.tensors[1].tolist()
        sets.append(as_classification_dataset(data))
    return benchmark_from_datasets(train=sets).train_stream, z, y


def held(strategy):
    """Bytes of the tensors that the net keeps."""
    return sum(v.numel() * v.element_size() for v in strategy.model.state()[0].values())


def alive():
    """Bytes of all tensors alive in this process."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [o for o in gc.get_objects() if type(o) in (torch.Tensor, torch.nn.Parameter)]
    return sum({t.data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def check(method, stream, z, y, slack):
    settings = {} if method in ("simplecil", "slda") else {"train_epochs": 2}
    strategy = make(method, load_backbone(Passing()), store=None, cache=False, **settings)
    tasks, seconds, bytes_, memory = len(stream), [], [], []
    for t, experience in enumerate(stream):
        start = time.process_time()
        strategy.train(experience, eval_streams=[])
        seconds.append(time.process_time() - start)
        bytes_.append(held(strategy))
        if t + 1 in (tasks // 10, tasks // 2, tasks):
            memory.append((t + 1, alive()))
    assert {b - a for a, b in itertools.pairwise(bytes_)} == {KEEPS[method]}
    (t0, m0), (t1, m1), (t2, m2) = memory
    early, late = (m1 - m0) / (t1 - t0), (m2 - m1) / (t2 - t1)
    assert late < 1.5 * early + 50_000, f"{early:.0f} bytes a task, then {late:.0f}"
    tenth = max(3, tasks // 10)
    first, last = (statistics.median(part) for part in (seconds[1 : 1 + tenth], seconds[-tenth:]))
    assert last < slack * first, f"{first:.4f} s a task, then {last:.4f} s"
    strategy.model.eval()
    with torch.no_grad():
        out = strategy.model.classify(z)
    assert torch.isfinite(out).all() and out.shape == (len(z), tasks)
    if method != "tosca":  # one class a task leaves its modules nothing to tell apart
        assert (out.argmax(1) == y).float().mean().item() > 10 / tasks


@pytest.mark.parametrize("method", KEEPS)
def test_each_task_keeps_what_the_method_says(method):
    check(method, *glyph_features(24, per_class=2), slack=50)


@pytest.mark.slow
@pytest.mark.parametrize("method", KEEPS)
def test_five_hundred_tasks(method):
    check(method, *glyph_features(500), slack=3)
