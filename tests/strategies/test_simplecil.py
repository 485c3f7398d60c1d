"""SimpleCIL: its law, and what it refuses."""

import numpy as np
import pytest
import torch
from avalanche.benchmarks import nc_benchmark

from tests.conftest import TinyNet, blobs
from tests.streams import of_tasks
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.plugins import AccuracyMatrixPlugin
from tosca_avalanche.strategies import SimpleCILStrategy

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


@pytest.mark.parametrize("tasks", [1, 2, 4, 12])
@pytest.mark.parametrize("order_seed", [0, 1993])
def test_final_accuracy_is_the_same_for_any_order_and_split(tasks, order_seed):
    """The law: prototypes depend on the data alone (up to one image for float ties)."""
    order = np.random.RandomState(order_seed).permutation(12).tolist()
    benchmark = nc_benchmark(
        blobs(12, 20, 1, spread=2.0),
        blobs(12, 30, 2, spread=2.0),
        n_experiences=tasks,
        task_labels=False,
        fixed_class_order=order,
    )
    matrix = AccuracyMatrixPlugin()
    strategy = SimpleCILStrategy(load_backbone(TinyNet()), plugins=[matrix], evaluator=None)
    strategy.train(benchmark.train_stream, eval_streams=[])
    strategy.eval(benchmark.test_stream)
    assert abs(int(matrix.correct[-1].sum()) - EXPECTED) <= 1


def literal_right() -> int:
    """The same number with numpy loops: class means of raw features, largest cosine."""
    backbone = load_backbone(TinyNet())
    train, test = blobs(12, 20, 1, spread=2.0), blobs(12, 30, 2, spread=2.0)
    z, q = backbone(train.tensors[0]).numpy(), backbone(test.tensors[0]).numpy()
    means = [z[train.tensors[1].numpy() == c].astype(float).mean(0) for c in range(12)]
    right = 0
    for feature, label in zip(q, test.tensors[1].tolist(), strict=True):
        score = [m @ feature / np.linalg.norm(m) / np.linalg.norm(feature) for m in means]
        right += int(np.argmax(score)) == label
    return right


EXPECTED = literal_right()


def test_the_case_is_neither_trivial_nor_hopeless():
    assert 90 < EXPECTED < 330


def test_a_class_again_updates_its_mean(backbone):
    benchmark = of_tasks([[0, 1], [1, 2]])
    strategy = SimpleCILStrategy(backbone, evaluator=None)
    strategy.train(benchmark.train_stream, eval_streams=[])
    images = [
        item[0] for e in benchmark.train_stream for item in e.dataset.eval() if int(item[1]) == 1
    ]
    assert len(images) == 16
    expected = backbone(torch.stack(images)).mean(0)
    torch.testing.assert_close(strategy.model.prototypes.means[1], expected)
    assert strategy.model.prototypes.counts.tolist() == [8, 16, 8]


@pytest.mark.parametrize(
    "bad", [{"train_epochs": 2}, {"optimizer": object()}, {"train_views": "fresh"}]
)
def test_settings_without_meaning_are_refused(bad, backbone):
    with pytest.raises(ValueError, match=next(iter(bad))):
        SimpleCILStrategy(backbone, **bad)
