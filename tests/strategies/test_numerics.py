"""Images and rates that break arithmetic: finite answers, or an error that says where."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_classification_dataset
from torch.utils.data import TensorDataset

from tests.conftest import blobs
from tests.strategies.methods import METHODS, fresh, make
from tosca_avalanche import ToscaClassifier
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import StoreError, ToscaError, TrainingError
from tosca_avalanche.features import FeatureStore
from tosca_avalanche.modules.tosca_net import PRESETS

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


ONE_STEP = {"train_mb_size": 12}


@methods
@pytest.mark.parametrize(
    ("lr", "last"), [(1e6, False), (1e6, True), (1e12, True), (1e20, True), (1e30, True)]
)
def test_a_huge_learning_rate_is_finite_or_an_error_with_its_place(method, lr, last):
    """No loss comes after the last step: its weights are looked at themselves."""
    if method in ("simplecil", "slda"):
        pytest.skip(f"{method} has no learning rate")
    own = {"base_lr" if method == "l2p" else "lr": lr, **(ONE_STEP if last else {})}
    if last:
        own["first_epochs" if method in ("aper", "ranpac") else "train_epochs"] = 1
    benchmark = stream(usual(), usual())
    strategy = make(method, store=None, **own)
    try:
        for experience in benchmark.train_stream:
            strategy.train(experience, eval_streams=[])
    except ToscaError as error:
        assert re.search(r"experience \d, epoch \d, batch \d", str(error)), error
        assert "learning rate" in str(error) and "pixels" not in str(error)
        return
    try:
        strategy.eval(benchmark.test_stream)
    except TrainingError as error:  # finite weights whose products are not
        assert method in ("finetune", "joint_finetune") and "learning rate" in str(error)
    else:
        finite_answers(strategy)


@pytest.mark.parametrize("lr", [1e6, 1e12, 1e20, 1e30])
@pytest.mark.parametrize("preset", ["paper", "routed"])
def test_the_classifiers_last_step_is_looked_at(preset, lr):
    own = {**PRESETS[preset], "projection": 50}
    model = ToscaClassifier(fresh("tosca"), epochs=1, batch_size=48, store=None, lr=lr, **own)
    x = usual().numpy().transpose(0, 2, 3, 1)
    z = model.features((x - x.min()) / (x.max() - x.min()))
    try:
        model.fit(z, [0, 1] * 6)
    except TrainingError as error:
        assert "task 0, epoch 0, batch 0; lower the learning rate" in str(error)
        assert model.n_tasks == 0
    else:
        assert np.isfinite(model.predict_proba(z)).all()
    assert lr < 1e20 or not model.n_tasks


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
        stored = r"^experience 0: image 0 of the data set: a feature is too large for float16"
        # methods that train on images fail at their loss
        assert re.search(stored + r"|experience \d, epoch \d, batch \d", str(error)), error
    else:
        finite_answers(strategy)


class Pixels(torch.nn.Module):
    embed_dim = 32

    def forward(self, x):
        return x.flatten(1)[:, :32] + 0.0


def test_the_one_feature_too_large_for_float16_is_named():
    large = usual()
    large[5, 0, 1, 1] = 1e6
    benchmark = stream(usual(), large)
    strategy = make("slda", load_backbone(Pixels()), store=FeatureStore(None, "float16"))
    strategy.train(benchmark.train_stream[0], eval_streams=[])
    named = "image 5 of the data set: a feature is too large for float16"
    with pytest.raises(StoreError, match=f"^experience 1: {named}"):
        strategy.train(benchmark.train_stream[1], eval_streams=[])
    with pytest.raises(StoreError, match=f"^test experience 1: {named}"):
        strategy.eval(benchmark.test_stream)
