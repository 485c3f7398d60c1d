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
from avalanche.core import SupervisedPlugin
from torch.utils.data import TensorDataset

from tests.strategies.methods import make
from tests.streams import of_tasks
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
    "ranpac": 4 * 200,  # a column of 200 random features
}
NO_TRAINING = {"simplecil": {}, "slda": {}, "ranpac": {"petl": False, "ridge": 1.0}}
IMAGES, SMALL = 6, 32  # images of a task, width of TinyViT
HEAD, ADAPTERS = 4 * (SMALL + 1), 4 * 2 * (2 * 4 * SMALL + 4 + SMALL)
# of a task of one class: bytes kept, and by how much more of these each task keeps than the one
# before; by how much more images it is trained on, in all epochs; by how many more passes its
# images make, and a test image
OF_IMAGES = {
    "aper": (8 * (2 * SMALL + 1), 0, 0, 0, 0),  # of the frozen and the adapted [CLS]
    "ranpac": (4 * 200, 0, 0, 0, 0),
    "l2p": (HEAD, 0, 0, 0, 0),
    "dualprompt": (HEAD + 4 * SMALL * (2 * 2 + 1), 0, 0, 0, 0),  # a prompt and its key
    "codaprompt": (HEAD + 4 * 2 * 3 * SMALL * (2 + 2), 0, 0, 0, 0),  # 2 blocks, 3 components
    "finetune": (HEAD, 0, 0, 0, 0),
    # each class has a prototype under every set
    "ease": (ADAPTERS + 2 * 4 * SMALL, 4 * SMALL, 0, IMAGES, 1),
    "mos": (HEAD + ADAPTERS + 4 * SMALL * (SMALL + 2), 0, 0, 0, 1),
    "joint": (4 * SMALL, 0, 3 * IMAGES, 0, 0),  # trained anew, in 3 epochs, on all images so far
    "joint_finetune": (HEAD, 0, 2 * IMAGES, 0, 0),
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


def check(method, stream, z, y, slack=None, **features):
    """Train on the stream; ``slack`` bounds a late task's time by that of an early one."""
    settings = NO_TRAINING.get(method, {"train_epochs": 2})
    features = features or {"store": None, "cache": False}
    strategy = make(method, load_backbone(Passing()), **features, **settings)
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
    if slack is not None:
        parts = seconds[1 : 1 + tasks // 10], seconds[-tasks // 10 :]
        first, last = (statistics.median(part) for part in parts)
        assert last < slack * first, f"{first:.4f} s a task, then {last:.4f} s"
    strategy.model.eval()
    with torch.no_grad():
        out = strategy.model.classify(z)
    assert torch.isfinite(out).all() and out.shape == (len(z), tasks)
    if method != "tosca":  # one class a task leaves its modules nothing to tell apart
        assert (out.argmax(1) == y).float().mean().item() > 10 / tasks


@pytest.mark.parametrize("method", KEEPS)
def test_each_task_keeps_what_the_method_says(method):
    check(method, *glyph_features(24, per_class=2))


class Seen(SupervisedPlugin):
    """Counts the images of all steps."""

    def __init__(self):
        super().__init__()
        self.images = 0

    def after_training_iteration(self, strategy, **kwargs):
        self.images += len(strategy.mb_y)


@pytest.mark.parametrize("method", OF_IMAGES)
def test_each_task_of_images_keeps_and_passes_what_the_method_says(method):
    seen, totals, passes = Seen(), [], []
    strategy = make(method, store=None, plugins=[seen])
    for experience in of_tasks([[t] for t in range(6)], per_class=IMAGES).train_stream:
        strategy.train(experience, eval_streams=[])
        totals.append((held(strategy), seen.images, strategy.model.images_passed))
        passes.append(strategy.model.passes_per_image)
    kept, trained, passed = (
        [b - a for a, b in itertools.pairwise(own)] for own in zip(*totals, strict=True)
    )
    assert kept[0] == OF_IMAGES[method][0]
    if method == "joint":  # as a part of a whole, the first task's images get other keys, once
        passed = passed[1:]
    for own, more in zip((kept, trained, passed, passes), OF_IMAGES[method][1:], strict=True):
        assert {b - a for a, b in itertools.pairwise(own)} == {more}, own


@pytest.mark.slow
@pytest.mark.parametrize("method", KEEPS)
def test_five_hundred_tasks(method):
    check(method, *glyph_features(500), slack=3)


@pytest.mark.slow
def test_five_hundred_tasks_with_features_on_disk(tmp_path):
    check("tosca", *glyph_features(500), slack=3, store=tmp_path, cache=True)
    files = list(tmp_path.rglob("shard-*"))
    assert 1 <= len(files) <= 65, "shards of single tasks are joined"
