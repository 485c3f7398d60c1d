"""TOSCA's training against a plain loop written from its description."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.conftest import TinyNet, blobs
from tests.streams import classic, of_tasks
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.modules import LuCA
from tosca_avalanche.seeding import derive_seed, generator
from tosca_avalanche.strategies import TOSCAStrategy

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")
EPOCHS, BATCH, LR, L1, SEED = 3, 8, 0.05, 1e-3, 11


def literal_tosca(backbone, tasks):
    """Train by the text of the method: own loop, own SGD, own cosine schedule, own l1."""
    modules, rows, sigma, seen = [], [], torch.tensor(1.0), []
    for t, (x, y) in enumerate(tasks):
        z = backbone(x)
        classes = sorted(set(y.tolist()))
        luca = LuCA(32, generator=generator(SEED, "luca", t))
        bound = 1 / math.sqrt(32)
        new = torch.empty(len(classes), 32)
        new.uniform_(-bound, bound, generator=generator(SEED, "head", t)).requires_grad_()
        sigma = sigma.detach().requires_grad_()
        seen += classes
        target = torch.tensor([seen.index(c) for c in y.tolist()])
        trained = [*luca.parameters(), new, sigma]
        velocity = [torch.zeros_like(p) for p in trained]
        for epoch in range(EPOCHS):
            rate = 1e-8 + 0.5 * (LR - 1e-8) * (1 + math.cos(math.pi * epoch / EPOCHS))
            order = shuffled(len(x), derive_seed(SEED, "shuffle", t, epoch))
            for batch in order.split(BATCH):
                head = torch.cat([*rows, new])
                cosine = F.cosine_similarity(luca(z[batch])[:, None], head[None], dim=-1)
                loss = F.cross_entropy(sigma * cosine, target[batch])
                loss = loss + L1 * sum(p.abs().sum() for p in luca.parameters())
                grads = torch.autograd.grad(loss, trained)
                with torch.no_grad():
                    for p, v, g in zip(trained, velocity, grads, strict=True):
                        v.mul_(0.9).add_(g)
                        p.sub_(rate * v)
        with torch.no_grad():
            rows.append(torch.stack([luca(z[y == c]).mean(0) for c in classes]))
        modules.append(luca)
    return modules, torch.cat(rows), sigma


def shuffled(n, seed):
    """The documented order of an epoch."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def test_training_is_the_method_written_out():
    backbone = load_backbone(TinyNet())
    benchmark = of_tasks([[0, 1, 2], [3, 4]], per_class=10)
    tasks = []
    for experience in benchmark.train_stream:
        items = list(experience.dataset.eval())
        tasks.append((torch.stack([i[0] for i in items]), torch.tensor([int(i[1]) for i in items])))
    strategy = TOSCAStrategy(
        backbone, train_epochs=EPOCHS, train_mb_size=BATCH, lr=LR, l1=L1, seed=SEED, evaluator=None
    )
    strategy.train(benchmark.train_stream, eval_streams=[])
    modules, rows, sigma = literal_tosca(backbone, tasks)
    model = strategy.model
    torch.testing.assert_close(model.head.rows, rows, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(model.head.sigma, sigma, atol=2e-5, rtol=1e-4)
    assert abs(sigma.item() - 1) > 1e-3, "sigma must have learned, or the test would not see it"
    for ours, theirs in zip(model.bank.luca, modules, strict=True):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


def test_a_new_optimiser_per_experience_over_trainable_parameters_only(backbone):
    strategy = TOSCAStrategy(backbone, train_epochs=1, evaluator=None)
    seen = []
    for experience in classic().train_stream:
        strategy.train(experience, eval_streams=[])
        seen.append(strategy.optimizer)
        held = {id(p) for g in strategy.optimizer.param_groups for p in g["params"]}
        own = [*strategy.model.bank.current.parameters()]
        own += [strategy.model.head.new_rows, strategy.model.head.sigma]
        assert held == {id(p) for p in own}
    assert len({id(o) for o in seen}) == 3


def test_authors_defaults(backbone):
    strategy = TOSCAStrategy(backbone, evaluator=None)
    assert (strategy.train_epochs, strategy.train_mb_size, strategy.eval_mb_size) == (20, 48, 48)
    strategy.train_epochs = 1
    strategy.train(classic().train_stream[0], eval_streams=[])
    group = strategy.optimizer.param_groups[0]
    assert isinstance(strategy.optimizer, torch.optim.SGD)
    assert (group["initial_lr"], group["momentum"], group["weight_decay"]) == (0.025, 0.9, 0)
    assert strategy.scheduler.eta_min == 1e-8


def test_optimiser_and_scheduler_can_be_replaced(backbone):
    rates = []

    def schedule(optimizer, epochs):
        rates.append(epochs)
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)

    adam = torch.optim.Adam(backbone.parameters(), lr=0.004, betas=(0.8, 0.99))
    for optimizer in (adam, lambda p: torch.optim.Adam(p, lr=0.004, betas=(0.8, 0.99))):
        strategy = TOSCAStrategy(
            backbone, optimizer=optimizer, scheduler=schedule, train_epochs=2, evaluator=None
        )
        strategy.train(classic().train_stream[0], eval_streams=[])
        group = strategy.optimizer.param_groups[0]
        assert isinstance(strategy.optimizer, torch.optim.Adam) and group["betas"] == (0.8, 0.99)
        assert group["lr"] == pytest.approx(0.004 * 0.01)
    assert rates == [2, 2]


def test_the_three_protocols(backbone):
    """The oracle knows the task; the batch protocol gives every image of a batch one module."""
    benchmark = classic()
    right = {}
    for selection in ("entropy", "entropy-batch", "oracle"):
        strategy = TOSCAStrategy(backbone, train_epochs=3, selection=selection, evaluator=None)
        strategy.train(benchmark.train_stream, eval_streams=[])
        chosen = []
        strategy.plugins.insert(0, Watch(chosen))
        strategy.eval(benchmark.test_stream)
        right[selection] = chosen
    assert [c.tolist() for c in right["oracle"]] == [[0] * 10, [1] * 10, [2] * 10]
    assert all(len(set(c.tolist())) == 1 for c in right["entropy-batch"])
    assert any(len(set(c.tolist())) > 1 for c in right["entropy"])


class Watch(torch.nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.chosen = chosen

    def after_eval_iteration(self, strategy, **kwargs):
        self.chosen.append(strategy.model.last_modules)

    def __getattr__(self, name):
        if name.startswith(("before_", "after_")):
            return lambda *a, **k: None
        return super().__getattr__(name)


def test_zero_rows_behave_as_described(backbone):
    """The authors' zero rows jump to a huge norm in the first step; ours are for that a switch."""
    strategy = TOSCAStrategy(backbone, head_init="zeros", train_epochs=1, l1=0, evaluator=None)
    norms = []

    class Norms(Watch):
        def after_update(self, strategy, **kwargs):
            norms.append(strategy.model.head.new_rows.norm(dim=1).max().item())

    strategy.plugins.insert(0, Norms([]))
    strategy.train(classic().train_stream[:2], eval_streams=[])
    assert norms[-1] > 1e6 and norms[0] < 10


def test_a_learning_rate_that_explodes_is_an_error_with_its_place(backbone):
    strategy = TOSCAStrategy(backbone, lr=1e30, norm="none", train_epochs=9, evaluator=None)
    from tosca_avalanche.errors import TrainingError

    with pytest.raises(TrainingError, match=r"experience 0, epoch \d, batch \d"):
        strategy.train(classic().train_stream[0], eval_streams=[])


def test_fresh_views_draw_from_the_training_transform():
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.benchmarks.utils import as_classification_dataset
    from avalanche.benchmarks.utils.transform_groups import TransformGroups

    def noisy(x):
        return x + torch.randn(x.shape)

    def benchmark():
        groups = TransformGroups({"train": (noisy, None), "eval": (None, None)})
        data = as_classification_dataset(blobs(3, 6, 0), groups)
        return benchmark_from_datasets(train=[data])

    def rows(workers=0, **settings):
        strategy = TOSCAStrategy(
            load_backbone(TinyNet()), train_epochs=2, evaluator=None, **settings
        )
        strategy.train(benchmark().train_stream[0], eval_streams=[], num_workers=workers)
        return strategy.model.bank.current.W1.detach()

    fresh = rows(train_views="fresh")
    torch.manual_seed(99)
    assert torch.equal(fresh, rows(train_views="fresh", workers=2))
    assert not torch.equal(fresh, rows(train_views=0))
    assert not torch.equal(fresh, rows(train_views="fresh", seed=1))
    for bad in ("x", -1, 1.5):
        with pytest.raises(ValueError, match=f"train_views={bad!r}"):
            rows(train_views=bad)
