"""Domain streams: the same classes in every task."""

import numpy as np
import pytest
import torch

from tests.benchmarks.trees import write_image, write_tree
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks import classes_of, domains
from tosca_avalanche.errors import StreamError
from tosca_avalanche.plugins import AccuracyMatrixPlugin
from tosca_avalanche.strategies import SimpleCILStrategy, TOSCAStrategy

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


@pytest.fixture
def root(tmp_path):
    top = tmp_path / "styles"
    write_tree(top / "photo", ["cat", "dog"], train=4, test=2)
    write_tree(top / "art", ["dog", "emu"], train=3, test=1)
    write_tree(top / "sketch", ["cat", "dog", "emu"], train=2, test=1)
    return top


def test_one_task_per_domain_and_one_label_per_class(root):
    benchmark = domains(str(root))
    assert benchmark.task_names == ["art", "photo", "sketch"]
    assert benchmark.class_names == ["cat", "dog", "emu"]
    assert [classes_of(e) for e in benchmark.train_stream] == [[1, 2], [0, 1], [0, 1, 2]]
    assert [len(e.dataset) for e in benchmark.train_stream] == [6, 8, 6]
    assert benchmark.task_sizes == [2, 2, 3]
    chosen = domains(str(root.parent), order=["sketch", "photo"])
    assert chosen.task_names == ["sketch", "photo"]
    shuffled = domains(str(root), domain_order_seed=0).task_names
    assert shuffled == [["art", "photo", "sketch"][i]
                        for i in np.random.RandomState(0).permutation(3)]  # fmt: skip


def test_what_is_wrong_is_named(root, tmp_path):
    with pytest.raises(StreamError, match=r"order=\['oil'\].*\['art', 'photo', 'sketch'\]"):
        domains(str(root), order=["oil"])
    with pytest.raises(StreamError, match="each goes in once"):
        domains(str(root), order=["art", "art"])
    write_tree(root / "oil", ["cat"], train=1, test=None)
    with pytest.warns(UserWarning, match=r"oil has no folder train"):
        assert len(domains(str(root)).train_stream) == 3
    write_image(root / "art" / "test" / "cat" / "0.png")
    with pytest.warns(UserWarning, match=r"'art': class 'cat' has no training images"):
        domains(str(root), order=["art", "photo"])
    (tmp_path / "none" / "x").mkdir(parents=True)
    with pytest.raises(StreamError, match=r"holds x; expected ROOT/DOMAIN"):
        domains(str(tmp_path / "none"))


def test_methods_on_a_domain_stream(root):
    """TOSCA keeps a row per (task, class), the largest answers; SimpleCIL's means go on."""
    backbone = load_backbone("tiny_vit_64", weights="random")
    benchmark = domains(str(root), backbone.transforms)
    matrix = AccuracyMatrixPlugin()
    tosca = TOSCAStrategy(backbone, plugins=[matrix], evaluator=None, train_epochs=1, store=None)
    simple = SimpleCILStrategy(backbone, evaluator=None, store=None)
    for strategy in (tosca, simple):
        strategy.train(benchmark.train_stream, eval_streams=[])
        strategy.eval(benchmark.test_stream)
    assert tosca.model.row_labels == [1, 2, 0, 1, 0, 1, 2]
    assert matrix.total[-1].tolist() == [2, 4, 3], "results per domain"
    z = torch.randn(4, 192)
    rows = tosca.model.head(tosca.model.bank.luca[1](z))
    logits = tosca.model.module_logits(z)[1]
    for position, label in enumerate(tosca.model.classes):
        own = [r for r, owner in enumerate(tosca.model.row_labels) if owner == label]
        torch.testing.assert_close(logits[:, position], rows[:, own].max(dim=1).values)
    assert simple.model.classes == [1, 2, 0]
    assert simple.model.prototypes.counts.tolist() == [3 + 4 + 2, 3 + 2, 4 + 2]
