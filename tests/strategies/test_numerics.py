"""Images and rates that break arithmetic: finite answers, or an error that says where."""

from __future__ import annotations

import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_classification_dataset
from torch.utils.data import TensorDataset

from tests.conftest import blobs
from tests.strategies.methods import METHODS, fresh, make
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import ToscaError
from tosca_avalanche.features import FeatureStore

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in ("No loggers", ".*cross-entropy is 0", ".*scale sigma", ".*Gram matrix", "all ")
]
methods = pytest.mark.parametrize("method", METHODS)
PLACE = r"experience 1(, epoch \d+, batch \d+|.*image \d+ of)"


def stream(*images):
    """One experience for each tensor of images [12, 3, 4, 4], two classes each."""
    sets = []
    for t, x in enumerate(images):
        y = torch.tensor([2 * t, 2 * t + 1]).repeat(len(x) // 2)
        data = TensorDataset(x, y)
        data.targets = y.tolist()
        sets.append(as_classification_dataset(data))
    return benchmark_from_datasets(train=sets, test=sets)


def usual():
    return blobs(0, 6, 1, labels=[0, 1]).tensors[0]


def finite_answers(strategy):
    strategy.model.eval()
    with torch.no_grad():
        out = strategy.model(blobs(4, 3, 9).tensors[0])
    assert torch.isfinite(out).all()
    tensors, _ = strategy.model.state()
    bad = [k for k, v in tensors.items() if not torch.isfinite(v).all()]
    assert not bad, bad


@methods
@pytest.mark.parametrize(("value", "cache"), [(float("nan"), True), (float("inf"), False)])
def test_an_image_that_is_not_finite_is_an_error_with_its_place(method, value, cache):
    broken = usual()
    broken[3, 0, 1, 1], broken[3, 0, 1, 2] = value, -value
    broken[3, 0, 1, 3] = 0 * value  # an infinite pixel alone is squashed by the tiny net's tanh
    benchmark = stream(usual(), broken)
    strategy = make(method, cache=cache, store=None)
    strategy.train(benchmark.train_stream[0], eval_streams=[])
    with pytest.raises(ToscaError, match=PLACE):
        strategy.train(benchmark.train_stream[1], eval_streams=[])
    tested = make(method, cache=cache, store=None)
    tested.train(stream(usual()).train_stream[0], eval_streams=[])
    with pytest.raises(ToscaError, match=r"test experience 1.*image 3 of"):
        tested.eval(benchmark.test_stream)


@methods
@pytest.mark.parametrize("kind", ["black", "equal within a class"])
def test_images_without_differences_give_finite_answers(method, kind):
    x = usual()
    if kind == "equal within a class":
        x[0::2], x[1::2] = x[0].clone(), x[1].clone()
    else:
        x[:] = 0
    benchmark = stream(x, usual(), x)
    strategy = make(method, store=None)
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[])
        strategy.eval(benchmark.test_stream)
    finite_answers(strategy)


class Constant(torch.nn.Module):
    """Features that are the same for every image, or all zero."""

    def __init__(self, inner, value):
        super().__init__()
        self.inner, self.value, self.embed_dim = inner, value, 32

    def forward(self, x):
        return torch.full((len(x), 32), self.value) + 0 * x.flatten(1).sum(1, keepdim=True)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("method", ["finetune", "joint", "joint_finetune", "simplecil", "slda",
                                    "tosca", "tosca_routed"])  # fmt: skip
def test_constant_features_give_finite_answers(method, value):
    benchmark = stream(usual(), usual())
    strategy = make(method, load_backbone(Constant(None, value)), store=None)
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[])
    finite_answers(strategy)


@methods
def test_a_huge_learning_rate_is_finite_or_an_error_with_its_place(method):
    if method in ("simplecil", "slda"):
        pytest.skip(f"{method} has no learning rate")
    benchmark = stream(usual(), usual())
    strategy = make(method, store=None, lr=1e6)
    try:
        for experience in benchmark.train_stream:
            strategy.train(experience, eval_streams=[])
    except ToscaError as error:
        assert "experience " in str(error) and "epoch" in str(error) and "batch" in str(error)
    else:
        finite_answers(strategy)


@methods
def test_features_too_large_for_float16_are_an_error(method):
    backbone = fresh(method)
    backbone.module.register_forward_hook(lambda m, a, out: out * 1e6)
    benchmark = stream(usual(), usual())
    strategy = make(method, backbone, store=FeatureStore(None, "float16"))
    try:
        for experience in benchmark.train_stream:
            strategy.train(experience, eval_streams=[])
    except ToscaError as error:
        said = str(error)  # methods that train on images fail at their loss
        assert "float16" in said or "experience 0" in said or "batch" in said
    else:
        finite_answers(strategy)
