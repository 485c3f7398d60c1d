"""The LuCA plugin: penalty, proximal step, prototypes, and other people's loops."""

import pytest
import torch
from avalanche.core import SupervisedPlugin
from avalanche.training import Naive

from tests.conftest import blobs
from tests.streams import classic, new_family
from tosca_avalanche.modules import ToscaNet
from tosca_avalanche.plugins import LuCAPlugin
from tosca_avalanche.strategies import TOSCAStrategy

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


class Spy(SupervisedPlugin):
    def __init__(self):
        super().__init__()
        self.losses = []

    def before_backward(self, strategy, **kwargs):
        self.losses.append(strategy.loss.item())

    def after_backward(self, strategy, **kwargs):
        self.final = strategy.loss.item()
        self.penalty = 0.01 * sum(
            p.abs().sum().item() for p in strategy.model.bank.current.parameters()
        )


def test_the_penalty_is_lambda_times_the_sum(backbone):
    spy = Spy()
    strategy = TOSCAStrategy(
        backbone, l1=0.01, train_epochs=1, train_mb_size=999, plugins=[spy], evaluator=None
    )
    strategy.train(classic().train_stream[0], eval_streams=[])
    assert len(spy.losses) == 1
    assert spy.final == pytest.approx(spy.losses[0] + spy.penalty, rel=1e-5)


def zeros(strategy):
    parameters = list(strategy.model.bank.parameters())
    return sum(int((p == 0).sum()) for p in parameters) / sum(p.numel() for p in parameters)


def test_only_the_proximal_step_gives_exact_zeros(backbone):
    share = {}
    for sparsity in ("l1", "proximal"):
        strategy = TOSCAStrategy(
            backbone, l1=0.05, sparsity=sparsity, lr=0.1, train_epochs=8, evaluator=None
        )
        strategy.train(classic().train_stream[0], eval_streams=[])
        share[sparsity] = zeros(strategy)
    assert share["l1"] < 0.01 < 0.15 < share["proximal"]


@pytest.mark.parametrize("family", [classic, new_family])
def test_rows_become_the_means_of_the_tasks_images(family, backbone):
    strategy = TOSCAStrategy(backbone, train_epochs=2, evaluator=None)
    benchmark = family()
    for t, experience in enumerate(benchmark.train_stream):
        strategy.train(experience, eval_streams=[])
        model = strategy.model
        for label in model.task_classes[t]:
            images = torch.stack(
                [item[0] for item in experience.dataset.eval() if int(item[1]) == label]
            )
            with torch.no_grad():
                mean = model.bank.luca[t](backbone(images)).mean(0)
            row = model.head.rows[model.row_labels.index(label)]
            torch.testing.assert_close(row, mean, atol=1e-6, rtol=1e-5)
    assert not any(p.requires_grad for p in model.bank.parameters())


def test_the_plugin_works_in_avalanches_naive(backbone):
    net = ToscaNet(backbone, scale_init=4.0)
    naive = Naive(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        train_mb_size=8,
        train_epochs=3,
        plugins=[LuCAPlugin()],
        evaluator=None,
    )
    for experience in classic().train_stream:
        before = [p.clone() for p in net.bank.parameters()]
        naive.train(experience)
        assert all(torch.equal(a, b) for a, b in zip(before, net.bank.parameters(), strict=False))
    data = blobs(6, 5, 2)
    order = torch.tensor([3, 0, 5, 1, 4, 2]).argsort()
    net.eval()
    accuracy = (net(data.tensors[0]).argmax(1) == order[data.tensors[1]]).float().mean()
    assert net.n_tasks == 3 and accuracy > 0.5


def test_one_class_alone_warns_and_still_gets_its_prototype(backbone):
    from tests.streams import of_tasks

    strategy = TOSCAStrategy(backbone, train_epochs=1, evaluator=None)
    with pytest.warns(UserWarning, match="single class 7"):
        strategy.train(of_tasks([[7]]).train_stream[0], eval_streams=[])
    assert strategy.model.head.rows.shape == (1, 32)


def test_prototype_initialisation(backbone):
    strategy = TOSCAStrategy(backbone, head_init="prototype", train_epochs=0, l1=0, evaluator=None)
    strategy.train(classic().train_stream[0], eval_streams=[])
    assert strategy.model.head.rows.norm(dim=1).min() > 1  # uniform rows have norm 0.58


def test_other_models_and_settings_are_refused(backbone):
    naive = Naive(
        model=backbone, optimizer=torch.optim.SGD([torch.zeros(1)], lr=1), plugins=[LuCAPlugin()],
        evaluator=None,
    )  # fmt: skip
    with pytest.raises(TypeError, match="ToscaNet"):
        naive.train(classic().train_stream[0])
    with pytest.raises(ValueError, match="sparsity='x'"):
        LuCAPlugin(sparsity="x")
    with pytest.raises(ValueError, match="-1"):
        LuCAPlugin(l1=-1)
