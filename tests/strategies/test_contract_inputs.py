"""What every strategy takes and refuses: models, labels, images."""

from __future__ import annotations

import warnings

import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_classification_dataset
from torch.utils.data import TensorDataset

from tests.conftest import blobs
from tests.strategies.methods import METHODS, NEED_A_VIT, fresh, make
from tests.streams import classic
from tosca_avalanche.benchmarks import LabelledImages
from tosca_avalanche.errors import BackboneError

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
