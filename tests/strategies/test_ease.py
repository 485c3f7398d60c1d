"""EASE in its loop: one pass per set and image, and the law that binds it to APER."""

import pytest
import torch

from tests.conftest import blobs
from tests.strategies.methods import fresh, make
from tests.streams import classic, of_tasks
from tosca_avalanche.features import FeatureStore

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


def test_with_one_task_ease_is_aper_without_the_frozen_cls():
    """Same seed, same settings, one task: the same adapters, bit for bit, and the same scores."""
    benchmark = of_tasks([[0, 1, 2]])
    same = {"width": 4, "train_mb_size": 8, "lr": 0.05, "weight_decay": 5e-4, "seed": 4}
    ease = make("ease", **same, train_epochs=3)
    aper = make("aper", **same, first_epochs=3, paired=False)
    for strategy in (ease, aper):
        strategy.train(benchmark.train_stream, eval_streams=[])
    pairs = zip(ease.model.sets[0].parameters(), aper.model.adapters.parameters(), strict=True)
    for a, b in pairs:
        assert torch.equal(a, b)
    x = blobs(3, 20, 9).tensors[0]
    with torch.no_grad():
        scores = [strategy.model.eval()(x) for strategy in (ease, aper)]
    torch.testing.assert_close(*scores)


def test_evaluation_after_task_t_costs_one_new_pass(tmp_path):
    """72 training and 30 test images, three tasks of 24."""
    benchmark = classic()
    strategy = make("ease", store=FeatureStore(tmp_path))
    for t, experience in enumerate(benchmark.train_stream):
        strategy.train(experience, eval_streams=[])
        before = strategy.model.images_passed
        for _ in range(2):
            strategy.eval(benchmark.test_stream)
        assert strategy.model.images_passed - before == 30, "one new pass, not t + 1"
        # statistics: the new task's 24 images in all t + 1 subspaces
        assert before == 24 * sum(range(1, t + 2)) + 30 * t


def test_each_task_has_fresh_adapters_and_a_local_head():
    benchmark = of_tasks([[0, 1], [2, 3, 4]])
    strategy = make("ease", train_epochs=0)
    strategy.train(benchmark.train_stream, eval_streams=[])
    a, b = strategy.model.sets
    assert not torch.equal(a[0].down_weight, b[0].down_weight), "never copied, drawn anew"
    assert strategy.model.proxy is None


def test_settings_of_the_authors():
    strategy = make("ease", fresh("ease"), width=64, train_epochs=2)
    strategy.train(classic().train_stream[0], eval_streams=[])
    group = strategy.optimizer.param_groups[0]
    assert (group["initial_lr"], group["momentum"], group["weight_decay"]) == (0.025, 0.9, 5e-4)
    assert group["lr"] == pytest.approx(0, abs=1e-12)
    shapes = [tuple(p.shape) for p in group["params"]]
    assert shapes.count(()) == 1 and (2, 32) in shapes, "sigma and the proxy's rows learn"
    assert len(shapes) == 2 * 4 + 2
    assert strategy.model.alpha == 0.1
