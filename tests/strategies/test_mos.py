"""MOS in its loop: groups of the optimiser, merging by step, alignment."""

import pytest
import torch

from tests.strategies.methods import make
from tests.streams import classic, of_tasks

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


def test_settings_of_the_authors():
    strategy = make("mos", train_epochs=2, width=16)
    strategy.train(classic().train_stream[0], eval_streams=[])
    adapters, head = strategy.optimizer.param_groups
    assert (adapters["initial_lr"], head["initial_lr"]) == pytest.approx((0.03, 0.003))
    assert {g["weight_decay"] for g in (adapters, head)} == {5e-4}
    assert {tuple(p.shape) for p in head["params"]} == {(2, 32), (2,)}
    assert len(adapters["params"]) == 2 * 4
    assert strategy.model.align_samples == 5 * 8


def test_merging_happens_after_each_step_and_in_training_only():
    benchmark = of_tasks([[0, 1], [2, 3]])
    calls = []
    strategy = make("mos", train_epochs=3, plugins=[])
    merge = strategy.model.merge
    strategy.model.merge = lambda: (calls.append(strategy.clock.train_exp_counter), merge())
    strategy.train(benchmark.train_stream, eval_streams=[])
    assert calls == [0] * 6 + [1] * 6, "16 images, batches of 8, 3 epochs"
    before = [p.clone() for p in strategy.model.sets.parameters()]
    strategy.eval(benchmark.test_stream)
    after = strategy.model.sets.parameters()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)) and len(calls) == 12


def test_no_learning_rate_leaves_nothing_but_merging():
    """With lr 0 a new set starts as the old one, and the mean of the old ones is itself."""
    benchmark = of_tasks([[0, 1], [2, 3]])
    strategy = make("mos", lr=1e-12)
    strategy.train(benchmark.train_stream, eval_streams=[])
    first, second = (list(s.parameters()) for s in strategy.model.sets)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b)


def test_alignment_moves_the_head_from_the_second_task_on():
    benchmark = of_tasks([[0, 1], [2, 3]])
    heads = {}
    for epochs in (0, 2):
        strategy = make("mos", align_epochs=epochs)
        for experience in benchmark.train_stream:
            strategy.train(experience, eval_streams=[])
            heads.setdefault(epochs, []).append(strategy.model.head.weight.detach().clone())
    assert torch.equal(heads[0][0], heads[2][0])
    assert not torch.allclose(heads[0][1], heads[2][1])


def test_the_separation_term_is_in_the_loss():
    benchmark = of_tasks([[0, 1]])
    weights = []
    for separation in (0.0, 0.1):
        strategy = make("mos", separation=separation)
        strategy.train(benchmark.train_stream, eval_streams=[])
        weights.append(strategy.model.sets[0][0].up_weight.detach())
    assert not torch.allclose(*weights)
