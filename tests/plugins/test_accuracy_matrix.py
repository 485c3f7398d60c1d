"""The accuracy matrix against predictions counted by hand."""

import json

import numpy as np
import pytest
import torch

from tests.streams import classic, of_tasks
from tosca_avalanche.benchmarks import mixed_experience
from tosca_avalanche.metrics import reliability_table
from tosca_avalanche.plugins import AccuracyMatrixPlugin
from tosca_avalanche.strategies import SimpleCILStrategy, TOSCAStrategy

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


def test_cells_are_the_counts_of_right_predictions(backbone):
    matrix = AccuracyMatrixPlugin()
    strategy = SimpleCILStrategy(backbone, plugins=[matrix], evaluator=None)
    benchmark = of_tasks([[0], [1, 2, 3], [4, 5]])
    for t, experience in enumerate(benchmark.train_stream):
        strategy.train(experience, eval_streams=[])
        strategy.eval(benchmark.test_stream[: t + 1])
        for i in range(t + 1):
            data = benchmark.test_stream[i].dataset
            images = torch.stack([item[0] for item in data])
            labels = torch.tensor([int(item[1]) for item in data])
            right = (strategy.model(images).argmax(1) == labels).sum()
            assert matrix.correct[t, i] == right
            assert matrix.total[t, i] == len(data)
    assert matrix.total.tolist() == [[4, 0, 0], [4, 12, 0], [4, 12, 8]]


def test_evaluations_inside_training_are_not_counted(backbone):
    matrix = AccuracyMatrixPlugin()
    strategy = TOSCAStrategy(
        backbone, train_epochs=2, plugins=[matrix], evaluator=None, eval_every=1
    )
    benchmark = classic()
    strategy.train(benchmark.train_stream[0], eval_streams=[benchmark.test_stream])
    inside = dict(matrix.cells)
    assert all(t == 0 for t, _ in inside)
    strategy.train(benchmark.train_stream[1], eval_streams=[])
    assert matrix.cells == inside
    strategy.eval(benchmark.train_stream[:1])  # the training stream is none of its business
    assert matrix.cells == inside


@pytest.mark.parametrize("order", ["class-sorted", "shuffled"])
def test_a_mixed_evaluation_fills_the_same_cells(order, backbone):
    matrix = AccuracyMatrixPlugin()
    strategy = TOSCAStrategy(backbone, train_epochs=2, plugins=[matrix], evaluator=None)
    benchmark = of_tasks([[0, 1], [2], [3, 4]])
    strategy.train(benchmark.train_stream, eval_streams=[])
    strategy.eval(benchmark.test_stream)
    cells, modules = dict(matrix.cells), dict(matrix.modules)
    matrix.cells, matrix.modules = {}, {}
    strategy.eval([mixed_experience(benchmark.test_stream, order)])
    assert matrix.cells == cells
    assert matrix.modules == modules
    table = matrix.selection_table(2)
    assert table.sum(axis=1).tolist() == [8, 4, 8]


def test_state_round_trip_is_plain_json(backbone):
    import json

    matrix = AccuracyMatrixPlugin()
    strategy = TOSCAStrategy(backbone, train_epochs=1, plugins=[matrix], evaluator=None)
    benchmark = classic()
    strategy.train(benchmark.train_stream, eval_streams=[])
    strategy.eval(benchmark.test_stream)
    copy = AccuracyMatrixPlugin()
    copy.restore(json.loads(json.dumps(matrix.state())))
    assert np.array_equal(copy.correct, matrix.correct)
    assert np.array_equal(copy.selection_table(2), matrix.selection_table(2))


def test_methods_without_modules_have_no_table(backbone):
    matrix = AccuracyMatrixPlugin()
    strategy = SimpleCILStrategy(backbone, plugins=[matrix], evaluator=None)
    strategy.train(classic().train_stream[0], eval_streams=[])
    strategy.eval(classic().test_stream)
    assert matrix.selection_table(0) is None


def test_reliability_counts_the_images_by_confidence(backbone):
    """The same cells from the outputs themselves, whatever the batch; none for cosines."""
    matrix = AccuracyMatrixPlugin()
    strategy = TOSCAStrategy(
        backbone, train_epochs=2, plugins=[matrix], evaluator=None, eval_mb_size=3
    )
    benchmark = of_tasks([[0, 1], [2], [3, 4]])
    for t, experience in enumerate(benchmark.train_stream):
        strategy.train(experience, eval_streams=[])
        strategy.eval(benchmark.test_stream)
        strategy.model.eval()
        sure, right = [], []
        for i in range(t + 1):
            for image, label, *_ in benchmark.test_stream[i].dataset:
                output = strategy.model(image.unsqueeze(0))[0].double()
                p = torch.softmax(output[strategy.model.classes], 0)
                sure.append(p.max().item())
                right.append(bool(output.argmax() == label))
        expected = reliability_table(sure, right)
        np.testing.assert_allclose(matrix.reliability_table(t), expected, atol=1e-5)
    other = AccuracyMatrixPlugin()
    other.restore(json.loads(json.dumps(matrix.state())))
    assert other.reliability == matrix.reliability and len(other.reliability) == 9
    old = matrix.state()
    del old["reliability"]
    other.restore(old)
    assert other.reliability_table(2) is None
    cosines = AccuracyMatrixPlugin()
    simple = SimpleCILStrategy(backbone, plugins=[cosines], evaluator=None)
    simple.train(benchmark.train_stream[0], eval_streams=[])
    simple.eval(benchmark.test_stream[:1])
    assert cosines.cells and cosines.reliability_table(0) is None
