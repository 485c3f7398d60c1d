"""What every strategy must do on every kind of benchmark."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.benchmarks.utils.data_attribute import TaskLabels
from avalanche.core import SupervisedPlugin
from avalanche.evaluation.metrics import accuracy_metrics, forgetting_metrics, loss_metrics
from avalanche.training.plugins import EvaluationPlugin
from torch.utils.data import TensorDataset

from tests.conftest import blobs
from tests.strategies.methods import FORGET, JOINT, METHODS, PROMPTS, assert_kept, fresh, kept, make
from tests.streams import STREAMS, classic, new_family, of_tasks
from tosca_avalanche.plugins import AccuracyMatrixPlugin
from tosca_avalanche.strategies import strategy_names

pytestmark = pytest.mark.filterwarnings("ignore:No loggers", "ignore:.*cross-entropy is 0")
methods = pytest.mark.parametrize("method", METHODS)


def test_every_registered_strategy_is_in_the_suite():
    assert sorted(METHODS) == strategy_names()


def outputs(strategy, x):
    strategy.model.eval()
    with torch.no_grad():
        return strategy.model(x)


def learned(method, backbone, benchmark, **settings):
    strategy = make(method, backbone, **settings)
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[])
    return strategy


@methods
@pytest.mark.parametrize("stream", STREAMS)
def test_learns_and_is_tested_before_between_and_after(method, stream):
    benchmark = STREAMS[stream]()
    matrix = AccuracyMatrixPlugin()
    strategy = make(method, plugins=[matrix])
    strategy.eval(benchmark.test_stream)
    for t, experience in enumerate(benchmark.train_stream):
        strategy.train(experience, eval_streams=[])
        before = {k: v.clone() for k, v in strategy.model.state_dict().items()}
        strategy.eval(benchmark.test_stream)
        after = strategy.model.state_dict()
        assert before.keys() == after.keys(), "evaluation must not grow the model"
        assert all(torch.equal(before[k], after[k]) for k in before)
        assert strategy.model.n_tasks == (1 if method in JOINT else t + 1)
    last = matrix.correct[-1] / matrix.total[-1]
    chance = 1 / len(strategy.model.classes)
    assert matrix.correct[-1].sum() / matrix.total[-1].sum() > chance, last


@methods
def test_predictions_do_not_depend_on_the_batch(method):
    strategy = learned(method, fresh(method), classic())
    x = blobs(6, 7, 3).tensors[0]
    whole = outputs(strategy, x).argmax(1)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    assert torch.equal(outputs(strategy, x[order]).argmax(1), whole[order])
    for size in (1, 7):
        parts = [outputs(strategy, part).argmax(1) for part in x.split(size)]
        assert torch.equal(torch.cat(parts), whole)


@methods
def test_changing_one_image_leaves_the_others_bit_equal(method):
    strategy = learned(method, fresh(method), classic())
    x = blobs(6, 7, 3).tensors[0]
    before = outputs(strategy, x)
    x[5] = 100.0
    after = outputs(strategy, x)
    rest = [i for i in range(len(x)) if i != 5]
    assert torch.equal(before[rest], after[rest])
    assert not torch.equal(before[5], after[5])


class Watch(SupervisedPlugin):
    """What an evaluation was given as task labels, and what came out."""

    def before_eval(self, strategy, **kwargs):
        self.tasks, self.outputs = [], []

    def after_eval_iteration(self, strategy, **kwargs):
        if len(strategy.mbatch) > 2:
            assert torch.equal(strategy.mb_task_id, strategy.mbatch[2])
            self.tasks += strategy.mb_task_id.tolist()
        self.outputs.append(strategy.mb_output)


def labelled(task):
    """Three test tasks of ten images whose items carry task(t) as their label, or none."""
    kept = [e.dataset for e in classic(task_labels=True).test_stream]
    if task is None:
        kept = [e.dataset for e in new_family().test_stream]
    for t, data in enumerate(kept if task else []):
        constant = TaskLabels([task(t)] * len(data))
        kept[t] = data.update_data_attribute("targets_task_labels", constant)
    return benchmark_from_datasets(test=kept).test_stream


@methods
@pytest.mark.parametrize("cache", [True, False])
def test_task_labels_at_test_do_not_matter(method, cache):
    """Right, wrong and absent test task labels give the same outputs, bit by bit."""
    watch = Watch()
    strategy = learned(method, fresh(method), classic(), plugins=[watch], cache=cache, store=None)
    answers = []
    for task in (lambda t: t, lambda t: 2 - t, lambda t: 7, None):
        strategy.eval(labelled(task))
        seen = [task(t) for t in range(3) for _ in range(10)] if task else []
        assert watch.tasks == seen, "the strategy did not get the labels of this test"
        answers.append(torch.cat(watch.outputs))
    assert all(torch.equal(answers[0], other) for other in answers[1:])


@methods
def test_the_backbone_is_never_changed(method):
    backbone = fresh(method)
    before = {k: v.clone() for k, v in backbone.state_dict().items()}
    strategy = learned(method, backbone, classic())
    strategy.model.train()
    assert not any(m.training for m in strategy.model.backbone.modules())
    after = backbone.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert not any(p.requires_grad for p in strategy.model.backbone.parameters())


class OnceOnly(TensorDataset):
    """Training images that can't be read any more once their task is over."""

    closed = False

    def __getitem__(self, index):
        if self.closed:
            raise AssertionError("training images of an earlier task were read again")
        return super().__getitem__(index)


@pytest.mark.parametrize("method", [m for m in METHODS if m not in JOINT])
def test_earlier_training_data_is_never_read_again(method):
    raw = []
    for labels in ([0, 1], [2, 3], [4]):
        base = blobs(0, 8, 1, labels=labels)
        data = OnceOnly(*base.tensors)
        data.targets = base.targets
        raw.append(data)
    benchmark = benchmark_from_datasets(train=[as_classification_dataset(d) for d in raw])
    strategy = make(method)
    for data, experience in zip(raw, benchmark.train_stream, strict=True):
        strategy.train(experience, eval_streams=[])
        data.closed = True
    with pytest.raises(AssertionError, match="earlier task"):
        strategy.train(benchmark.train_stream[0], eval_streams=[])


@pytest.mark.parametrize("method", [m for m in METHODS if m not in FORGET])
def test_what_was_learned_earlier_stays_bit_equal(method):
    benchmark = of_tasks([[0, 1], [2, 3], [4, 5]])
    strategy, earlier = make(method), []
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[])
        assert_kept(method, strategy, earlier)
        earlier.append(kept(method, strategy))


@methods
def test_resuming_from_a_state_is_bit_equal(method):
    benchmark = of_tasks([[0, 1], [2, 3], [1, 4]])
    whole = learned(method, fresh(method), benchmark, seed=3)
    first = make(method, fresh(method), seed=3)
    first.train(benchmark.train_stream[0], eval_streams=[])
    torch.randn(17)  # whatever else draws from the global generator
    second = make(method, fresh(method), seed=3)
    second.model.restore(*first.model.state())
    for experience in benchmark.train_stream[1:]:
        second.train(experience, eval_streams=[])
    x = blobs(5, 9, 3).tensors[0]
    assert torch.equal(outputs(whole, x), outputs(second, x))


@methods
def test_counts_survive_a_restart_and_nets_can_be_copied(method):
    benchmark = of_tasks([[0, 1], [2, 3]])
    strategy = learned(method, fresh(method), benchmark)
    model = strategy.model
    copy.deepcopy(model)
    second = make(method, fresh(method))
    second.model.restore(*model.state())
    assert second.model.images_passed == model.images_passed
    assert second.model.images_trained == model.images_trained
    if method in (*PROMPTS, *FORGET, "ease", "mos") and method != "joint":
        per_epoch = 16 + 32 if method in JOINT else 32
        assert model.images_trained == 2 * per_epoch


@methods
def test_evaluations_in_between_and_seeds(method):
    """eval_every, workers and the global random state change nothing; the seed may."""
    x = blobs(6, 9, 3).tensors[0]
    results = []
    for i, extra in enumerate(({}, {"eval_every": 1}, {"eval_every": 0})):
        torch.manual_seed(i)
        strategy = make(method, fresh(method), **extra)
        benchmark = new_family()
        for experience in benchmark.train_stream:
            strategy.train(experience, eval_streams=[benchmark.test_stream])
        results.append(outputs(strategy, x))
    strategy = make(method, fresh(method))
    for experience in new_family().train_stream:
        strategy.train(experience, eval_streams=[], num_workers=2)
    results.append(outputs(strategy, x))
    assert all(torch.equal(results[0], r) for r in results[1:])


@methods
@pytest.mark.parametrize("family", [classic, new_family])
def test_avalanche_metrics_agree_with_ours(method, family):
    metrics = EvaluationPlugin(
        accuracy_metrics(epoch=True, experience=True, stream=True),
        loss_metrics(experience=True),
        forgetting_metrics(experience=True, stream=True),
        loggers=[],
    )
    matrix = AccuracyMatrixPlugin()
    strategy = make(method, evaluator=metrics, plugins=[matrix])
    benchmark = family()
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[])
        result = strategy.eval(benchmark.test_stream)
    name = next(k for k in result if k.startswith("Top1_Acc_Stream/eval_phase/test_stream"))
    assert result[name] == pytest.approx(matrix.correct[-1].sum() / matrix.total[-1].sum())
    losses = [v for k, v in result.items() if k.startswith("Loss_Exp")]
    assert len(losses) == 3 and np.isfinite(losses).all()
    assert any(k.startswith("StreamForgetting") for k in result)


@methods
def test_default_evaluator_and_loggers(method, capsys):
    cls, own = METHODS[method]
    strategy = cls(fresh(method), **own)
    benchmark = classic()
    strategy.train(benchmark.train_stream[0])
    strategy.eval(benchmark.test_stream)
    assert "Top1_Acc_Stream" in capsys.readouterr().out


@methods
def test_many_tasks_at_once(method):
    """train() takes a whole stream, one experience after another."""
    benchmark = classic()
    strategy = make(method)
    strategy.train(benchmark.train_stream, eval_streams=[])
    one_by_one = learned(method, fresh(method), classic())
    x = blobs(6, 9, 3).tensors[0]
    assert torch.equal(outputs(strategy, x), outputs(one_by_one, x))
