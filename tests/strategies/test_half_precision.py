"""Features that are stored or made in half precision answer as those in single precision do."""

from __future__ import annotations

import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets, nc_benchmark
from avalanche.core import SupervisedPlugin

from tests.conftest import blobs
from tests.strategies.methods import METHODS, fresh, make
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks import digits
from tosca_avalanche.features import FeatureStore

pytestmark = pytest.mark.filterwarnings("ignore:No loggers", "ignore:.*Gram matrix", "ignore:of .*")
STORED = [m for m in METHODS if m not in ("finetune", "joint_finetune")]


class Answers(SupervisedPlugin):
    """What an evaluation answered, and the stored features that it worked on."""

    def before_eval(self, strategy, **kwargs):
        self.given, self.stored = [], []

    def after_eval_iteration(self, strategy, **kwargs):
        self.given.append(strategy.mb_output.argmax(1))
        self.stored.append(strategy.mb_x if strategy._on_features else strategy.mb_query)


def answers(method, benchmark, backbone, store, **settings):
    """Learn the stream, then evaluate it through the strategy and its store."""
    seen = Answers()
    strategy = make(method, backbone, store=store, plugins=[seen], **settings)
    strategy.train(benchmark.train_stream, eval_streams=[])
    strategy.eval(benchmark.test_stream)
    return torch.cat(seen.given), torch.cat(seen.stored)


def assert_halves(z):
    assert torch.equal(z, z.half().float()), "these features were never stored as halves"


@pytest.mark.parametrize("method", STORED)
def test_features_in_half_precision_give_the_same_answers(method):
    """At least 99 % equal predictions, with stored halves and with autocast."""
    benchmark = nc_benchmark(
        blobs(10, 20, 1), blobs(10, 60, 2), n_experiences=5, task_labels=False,
        fixed_class_order=list(range(10)),
    )  # fmt: skip
    full, z = answers(method, benchmark, fresh(method), FeatureStore(None))
    assert not torch.equal(z, z.half().float())
    for precision in ("float32", "bfloat16"):
        backbone = load_backbone(fresh(method).module, precision=precision)
        half, z = answers(method, benchmark, backbone, FeatureStore(None, dtype="float16"))
        assert_halves(z)
        share = (half == full).float().mean()
        assert share >= 0.99, (precision, share)


def test_stored_halves_of_the_real_backbone_give_the_same_answers():
    """At least 99 % equal predictions on the 450 test images of the digits, by each method."""
    backbone = load_backbone("tiny_vit_64")
    whole = digits(backbone.transforms)
    benchmark = benchmark_from_datasets(
        train=[e.dataset.subset(range(0, len(e.dataset), 3)) for e in whole.train_stream],
        test=[e.dataset for e in whole.test_stream],
    )
    stores = FeatureStore(None), FeatureStore(None, dtype="float16")
    for method in ("simplecil", "slda", "tosca", "tosca_routed"):
        full, half = (answers(method, benchmark, backbone, store) for store in stores)
        assert not torch.equal(full[1], full[1].half().float())
        assert_halves(half[1])
        share = (half[0] == full[0]).float().mean()
        assert len(full[0]) == 450 and share >= 0.99, (method, share)
        right = torch.cat([torch.tensor(list(e.dataset.targets)) for e in whole.test_stream])
        assert (full[0] == right).float().mean() > 0.2, "no better than chance"
