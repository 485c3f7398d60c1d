"""Laws that hold for all inputs, checked on drawn ones. What is drawn is the same each time."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from avalanche.core import SupervisedPlugin
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import TinyNet, blobs
from tests.strategies.methods import FORGET, METHODS, assert_kept, fresh, kept, make
from tests.strategies.test_contract import learned, outputs
from tests.streams import of_tasks
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.metrics import average_task_accuracy, last_accuracy, task_accuracy
from tosca_avalanche.modules import ToscaNet

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in ("No loggers", ".*cross-entropy is 0", ".*Gram matrix", "all ", "of .* prompts")
]
methods = pytest.mark.parametrize("method", METHODS)


def few(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@functools.cache
def ready(method):
    """A method that has learned six classes in three tasks; nothing below changes it."""
    return learned(method, fresh(method), of_tasks([[0, 3], [1, 4], [2, 5]]), store=None)


@functools.cache
def pool():
    return blobs(6, 4, 3).tensors[0]


@methods
@few(6)
@given(data=st.data())
def test_an_answer_depends_on_its_image_alone(method, data):
    """Any selection, order, repetition and batching of images."""
    strategy, x = ready(method), pool()
    whole = outputs(strategy, x)
    chosen = data.draw(st.lists(st.integers(0, len(x) - 1), min_size=1, max_size=9))
    size = data.draw(st.integers(1, len(chosen)))
    parts = [outputs(strategy, part) for part in x[chosen].split(size)]
    found = torch.cat(parts)
    assert torch.equal(found.argmax(1), whole[chosen].argmax(1))
    torch.testing.assert_close(found, whole[chosen], atol=2e-4, rtol=2e-4)
    twice = outputs(strategy, x[[*chosen, *chosen]])
    assert torch.equal(twice[: len(chosen)].argmax(1), twice[len(chosen) :].argmax(1))


def stir(net):
    """Give what learns next values of its own, in place of training: adapters start as nothing."""
    draws = torch.Generator().manual_seed(net.n_tasks)
    with torch.no_grad():
        for name, p in net.named_parameters():
            if "up_weight" in name and p.requires_grad:
                p.copy_(torch.randn(p.shape, generator=draws))


class Stir(SupervisedPlugin):
    """Stirs a net at the start of each task."""

    def before_training_exp(self, strategy, **kwargs):
        stir(strategy.model)


# rows that are trained start from draws by position: a class's values are not its own
PERMUTED = {
    "aper": {"first_epochs": 0},
    "ease": {"train_epochs": 0},
    "ranpac": {"first_epochs": 0},
    "simplecil": {},
    "slda": {},
    "tosca": {"train_epochs": 0},
    "tosca_routed": {"train_epochs": 0, "rows": "prototype"},
}


@pytest.mark.parametrize("method", PERMUTED)
@few(4)
@given(order=st.permutations([0, 1, 2]))
def test_permuting_classes_within_a_task_permutes_outputs(method, order):
    """Names of classes mean nothing: other labels for the same images move the columns."""
    answers = []
    for new in ([0, 1, 2], order):
        strategy = make(method, fresh(method), store=None, plugins=[Stir()], **PERMUTED[method])
        renamed = [[new[0], new[1], new[2]], [3, 4]]

        def relabelled(n, per_class, seed, labels=None, renamed=renamed):
            old = [0, 1, 2] if labels == renamed[0] else labels
            data = blobs(n, per_class, seed, labels=old)
            data.tensors = (
                data.tensors[0],
                torch.tensor([labels[old.index(c)] for c in data.targets]),
            )
            data.targets = data.tensors[1].tolist()
            return data

        for experience in of_tasks(renamed, train=relabelled).train_stream:
            strategy.train(experience, eval_streams=[])
        answers.append(outputs(strategy, pool()))
    torch.testing.assert_close(answers[1][:, [*order, 3, 4]], answers[0], atol=1e-4, rtol=1e-4)
    assert torch.equal(answers[1][:, [*order, 3, 4]].argmax(1), answers[0].argmax(1))


@few(6)
@given(order=st.permutations([0, 1, 2]))
def test_permuting_rows_of_tosca_permutes_outputs(order):
    """The same modules and prototypes under other labels."""
    nets = []
    for new in ([0, 1, 2], order):
        net = ToscaNet(load_backbone(TinyNet()), seed=1)
        for labels in ([0, 1, 2], [3, 4]):
            net.add_task(labels)
            rows = torch.randn(
                len(labels), 32, generator=torch.Generator().manual_seed(len(labels))
            )
            if len(labels) == 3:
                rows = rows[np.argsort(new)]
            net.finish_task(rows)
        nets.append(outputs_of(net))
    torch.testing.assert_close(nets[1][:, [*order, 3, 4]], nets[0], atol=1e-5, rtol=1e-5)


def outputs_of(net):
    net.eval()
    with torch.no_grad():
        return net(pool())


@pytest.mark.parametrize("method", [m for m in METHODS if m not in FORGET])
@few(2)
@given(sizes=st.lists(st.integers(1, 3), min_size=3, max_size=4))
def test_old_modules_and_prototypes_never_change(method, sizes):
    labels = iter(range(99))
    tasks = [[next(labels) for _ in range(n)] for n in sizes]
    strategy, earlier = make(method, fresh(method), store=None), []
    for experience in of_tasks(tasks, per_class=4).train_stream:
        strategy.train(experience, eval_streams=[])
        assert_kept(method, strategy, earlier)
        earlier.append(kept(method, strategy))


@few(6)
@given(seed=st.integers(0, 1000), classes=st.integers(1, 5))
def test_with_one_task_tosca_is_its_single_module(seed, classes):
    net = ToscaNet(load_backbone(TinyNet()), seed=seed)
    net.add_task(list(range(classes)))
    net.finish_task(torch.randn(classes, 32, generator=torch.Generator().manual_seed(seed)))
    net.eval()
    with torch.no_grad():
        z = net.backbone(pool())
        single = net.head(net.bank.luca[0](z))
        assert torch.equal(net(pool()).argmax(1), single.argmax(1))
        torch.testing.assert_close(net(pool()), single, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", ["aper", "ease", "simplecil"])
@few(8)
@given(exponent=st.integers(-12, 12))
def test_scaling_all_features_of_a_cosine_method_changes_nothing(method, exponent):
    """By powers of two, which no rounding sees."""
    answers = []
    for scale in (1.0, 2.0**exponent):
        net = make(method, fresh(method)).model
        for t, labels in enumerate([[0, 1], [2, 3], [4]]):
            net.add_task(labels)
            stir(net)
            if net.adapting:
                net.finish_adapting()
            x, y = blobs(0, 5, t, labels=labels).tensors
            net.learn(scale * net.features(x), y)
            net.end_task()
        answers.append(net.eval().classify(scale * net.features(pool())))
    assert torch.equal(*answers)


@few(30)
@given(data=st.data())
def test_metrics_of_a_permuted_accuracy_matrix(data):
    """Names of tasks mean nothing to what weighs all of them alike."""
    n = data.draw(st.integers(1, 5))
    sizes = st.lists(st.integers(0, 9), min_size=n, max_size=n)
    total = np.array([data.draw(sizes) for _ in range(n)])
    correct = np.array([[data.draw(st.integers(0, int(k))) for k in line] for line in total])
    order = list(data.draw(st.permutations(range(n))))
    columns = correct[:, order], total[:, order]
    assert last_accuracy(*columns) == last_accuracy(correct, total)
    for new, old in enumerate(order):
        assert task_accuracy(*columns, n - 1, new) == task_accuracy(correct, total, n - 1, old)
    both = correct[order][:, order], total[order][:, order]
    here, there = average_task_accuracy(correct, total), average_task_accuracy(*both)
    assert here.n == there.n
    assert here.value == (pytest.approx(there.value) if there.n else None)
