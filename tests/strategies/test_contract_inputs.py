"""What every strategy takes and refuses: models, labels, images."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_classification_dataset
from torch.utils.data import StackDataset, TensorDataset

from tests.conftest import blobs
from tests.strategies.methods import METHODS, NEED_A_VIT, TinyViT, fresh, make
from tests.streams import classic
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks import LabelledImages
from tosca_avalanche.errors import BackboneError, InputError

pytestmark = pytest.mark.filterwarnings("ignore:No loggers", "ignore:.*cross-entropy is 0")
methods = pytest.mark.parametrize("method", METHODS)


@methods
def test_the_model_goes_by_position_or_by_name_without_a_warning(method):
    cls, own = METHODS[method]

    class Child(cls):
        """A user's subclass."""

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="No loggers")
        cls(fresh(method), evaluator=None, **own)
        cls(model=fresh(method), evaluator=None, **own)
        Child(fresh(method), evaluator=None, **own)
    with pytest.raises(TypeError, match="lrr"):
        cls(fresh(method), lrr=1)


@methods
def test_negative_and_huge_labels_are_refused_by_name(method):
    for label in (-1, 2_000_000):
        data = blobs(0, 3, 1, labels=[0, 1])
        y = torch.where(data.tensors[1] == 1, label, 0)
        bad = TensorDataset(data.tensors[0], y)
        bad.targets = y.tolist()
        benchmark = benchmark_from_datasets(train=[as_classification_dataset(bad)])
        with pytest.raises(ValueError, match=str(label)):
            make(method).train(benchmark.train_stream[0])


@methods
def test_a_plain_module_of_unknown_width(method):
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 10))
    if method in NEED_A_VIT:
        with pytest.raises(BackboneError, match="VisionTransformer, this backbone is a Sequential"):
            make(method, module)
        return
    strategy = make(method, module)
    strategy.train(classic().train_stream, eval_streams=[])
    assert strategy.model.backbone.embed_dim == 10


@methods
def test_images_that_are_no_tensors_are_named(method):
    from PIL import Image

    data = [(Image.new("RGB", (4, 4)), label) for label in (0, 1)]
    pictures = LabelledImages(data, [0, 1], lambda item: item[0])
    benchmark = benchmark_from_datasets(train=[as_classification_dataset(pictures)])
    with pytest.raises(BackboneError, match=r"Image.*backbone\.transforms"):
        make(method).train(benchmark.train_stream[0])


def one_experience(x, y):
    """The same images and labels in training and in test."""
    data = StackDataset(x, y)
    data.targets = y
    sides = [as_classification_dataset(data)]
    return benchmark_from_datasets(train=sides, test=sides)


@methods
@pytest.mark.parametrize("cache", [True, False])
def test_images_of_another_shape_are_refused_with_the_remedy(method, cache):
    """In training, and in a test of what was learned on images of the right shape."""
    x = blobs(2, 2, 1).tensors[0]
    good = one_experience(x, [0, 0, 1, 1])
    for bad, words in (
        (x[:, :1], r"\[3, 4, 4\], got \[1, 4, 4\]; .*expand\(3, -1, -1\)"),
        (x.repeat(1, 1, 2, 1), r"\[3, 4, 4\], got \[3, 8, 4\]; build .*transforms"),
    ):
        benchmark = one_experience(bad, [0, 0, 1, 1])
        strategy = make(method, load_backbone(TinyViT()), cache=cache, store=None)
        with pytest.raises(BackboneError, match=words):
            strategy.train(benchmark.train_stream[0], eval_streams=[])
        strategy = make(method, load_backbone(TinyViT()), cache=cache, store=None)
        strategy.train(good.train_stream[0], eval_streams=[])
        with pytest.raises(BackboneError, match=words):
            strategy.eval(benchmark.test_stream)


@methods
@pytest.mark.parametrize("cache", [True, False])
def test_labels_that_are_no_numbers_are_refused_with_the_remedy(method, cache):
    x = blobs(2, 2, 1).tensors[0]
    for bad, words in (("cat", "'cat'"), ("1", "'1'"), (0.5, "0.5"), (np.str_("dog"), "dog")):
        benchmark = one_experience(x, [0, 0, bad, bad])
        strategy = make(method, cache=cache, store=None)
        with pytest.raises(InputError, match=f"{words}.* no whole number; map .*ToscaClassifier"):
            strategy.train(benchmark.train_stream[0], eval_streams=[])
        strategy.train(one_experience(x, [0, 0, 1, 1]).train_stream[0], eval_streams=[])
        with pytest.raises(InputError, match=f"{words}.* no whole number; map .*ToscaClassifier"):
            strategy.eval(benchmark.test_stream)
