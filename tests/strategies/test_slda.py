"""SLDA: the same final model for any order and split."""

import numpy as np
import pytest
import torch
from avalanche.benchmarks import nc_benchmark

from tests.conftest import TinyNet, blobs
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.strategies import SLDAStrategy

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


def final(tasks, order):
    benchmark = nc_benchmark(
        blobs(12, 20, 1), blobs(12, 5, 2), n_experiences=tasks, task_labels=False,
        fixed_class_order=order,
    )  # fmt: skip
    strategy = SLDAStrategy(load_backbone(TinyNet()), evaluator=None)
    strategy.train(benchmark.train_stream, eval_streams=[])
    return strategy.model


@pytest.mark.parametrize("tasks", [1, 3, 12])
@pytest.mark.parametrize("order_seed", [0, 1993])
def test_the_law(tasks, order_seed):
    x = blobs(12, 30, 3, spread=2.0).tensors[0]
    reference = final(1, list(range(12)))
    other = final(tasks, np.random.RandomState(order_seed).permutation(12).tolist())
    torch.testing.assert_close(other.statistics.covariance, reference.statistics.covariance)
    torch.testing.assert_close(other(x), reference(x), atol=1e-3, rtol=1e-4)
