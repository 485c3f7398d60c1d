"""Finetune, the floor, and Joint, the ceiling."""

import pytest
import torch
from avalanche.core import SupervisedPlugin

from tests.conftest import TinyNet, blobs
from tests.strategies.methods import JOINT, fresh, make
from tests.streams import classic, of_tasks
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import TrainingError
from tosca_avalanche.plugins import AccuracyMatrixPlugin

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


def test_finetune_trains_every_weight_of_a_copy():
    backbone = fresh("ease")  # a transformer
    strategy = make("finetune", backbone)
    before = {k: v.clone() for k, v in strategy.model.network.state_dict().items()}
    strategy.train(of_tasks([[0, 1]]).train_stream, eval_streams=[])
    after = strategy.model.network.state_dict()
    unmoved = [k for k in before if torch.equal(before[k], after[k])]
    assert unmoved == []
    given = backbone.module.state_dict()
    assert all(torch.equal(before[k], given[k]) for k in before)


def test_finetune_learns_the_new_classes_alone_and_forgets():
    matrix = AccuracyMatrixPlugin()
    strategy = make("finetune", fresh("ease"), plugins=[matrix], train_epochs=10)
    benchmark = of_tasks([[0, 1], [2, 3]])
    strategy.train(benchmark.train_stream[0], eval_streams=[])
    strategy.eval(benchmark.test_stream)
    rows = strategy.model.head.weight.detach().clone()
    strategy.train(benchmark.train_stream[1], eval_streams=[])
    strategy.eval(benchmark.test_stream)
    assert torch.equal(strategy.model.head.weight[:2], rows), "old rows get no gradient"
    right = matrix.correct / matrix.total
    assert right[0, 0] == 1 and right[1, 0] < 1 and right[1, 1] > 0.5


def test_finetune_draws_nothing_from_the_global_state():
    """TinyNet has dropout, which takes its draws from there."""
    results = []
    for _ in range(2):
        strategy, benchmark = make("finetune", load_backbone(TinyNet())), classic()
        state = torch.get_rng_state()
        strategy.train(benchmark.train_stream, eval_streams=[])
        assert torch.equal(torch.get_rng_state(), state)
        results.append(strategy.model.network.linear.weight.detach())
        torch.randn(3)
    assert torch.equal(*results)


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("joint", "plain"), [("joint", "tosca"), ("joint_finetune", "finetune")])
def test_joint_is_the_method_on_one_task_of_everything(joint, plain):
    tasks = [[0, 1], [2, 3], [4]]
    merged = of_tasks(tasks)
    strategy = make(joint, fresh("ease"), seed=2)
    strategy.train(merged.train_stream, eval_streams=[])
    alone = make(plain, fresh("ease"), seed=2)
    whole = of_tasks(tasks).train_stream
    experience = whole[0]
    for later in whole[1:]:
        experience._dataset = experience._dataset.concat(later.dataset)
    alone.train(experience, eval_streams=[])
    x = blobs(5, 8, 3).tensors[0]
    assert torch.equal(strategy.model.eval()(x), alone.model.eval()(x))
    assert strategy.model.task_classes == [[0, 1, 2, 3, 4]]


def test_a_restored_joint_takes_earlier_data_from_its_stream_or_says_so():
    benchmark = of_tasks([[0, 1], [2, 3]])
    first = make("joint")
    first.train(benchmark.train_stream[0], eval_streams=[])
    second = make("joint")
    second.model.restore(*first.model.state())
    other = of_tasks([[5, 6], [7, 8]])
    with pytest.raises(TrainingError, match=r"classes \[0, 1\].*has \[5, 6\]"):
        second.train(other.train_stream[1], eval_streams=[])
    second = make("joint")
    second.model.restore(*first.model.state())
    second.train(benchmark.train_stream[1], eval_streams=[])
    assert second.model.classes == [0, 1, 2, 3]


@pytest.mark.parametrize("method", JOINT)
@pytest.mark.parametrize("task", [0, 1])
def test_joint_training_that_was_interrupted_starts_again(method, task, monkeypatch):
    """No image counts twice, and nothing of the attempt is left."""
    benchmark = of_tasks([[0, 1], [2, 3], [4]])
    whole, strategy = make(method, seed=2), make(method, seed=2)
    for t, experience in enumerate(benchmark.train_stream):
        whole.train(experience, eval_streams=[])
        if t == task:
            monkeypatch.setattr(strategy, "backward", interrupt)
            with pytest.raises(KeyboardInterrupt):
                strategy.train(experience, eval_streams=[])
            monkeypatch.undo()
        strategy.train(experience, eval_streams=[])
        assert len(strategy.seen) == t + 1
    x = blobs(5, 8, 3).tensors[0]
    assert torch.equal(strategy.model.eval()(x), whole.model.eval()(x))


def test_a_restored_joint_on_a_slice_of_a_classic_stream():
    first, second = make("joint"), make("joint")
    first.train(classic().train_stream[:2], eval_streams=[])
    second.model.restore(*first.model.state())
    second.train(classic().train_stream[2:], eval_streams=[])
    assert second.model.classes == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("method", ["ease", "mos", "finetune"])
def test_a_net_that_was_interrupted_says_what_to_do(method):
    benchmark = of_tasks([[0, 1], [2, 3]])
    strategy = make(method, fresh("ease"))
    strategy.train(benchmark.train_stream[0], eval_streams=[])
    state = strategy.model.state()
    strategy.backward = interrupt
    with pytest.raises(KeyboardInterrupt):
        strategy.train(benchmark.train_stream[1], eval_streams=[])
    with pytest.raises(TrainingError, match=r"task 1 was interrupted.*restore"):
        strategy.train(benchmark.train_stream[1], eval_streams=[])
    again = make(method, fresh("ease"))
    again.model.restore(*state)
    again.train(benchmark.train_stream[1], eval_streams=[])
    assert again.model.n_tasks == 2


@pytest.mark.parametrize("method", ["finetune", "mos"])
def test_an_evaluation_amid_training_lets_all_classes_compete(method):
    benchmark = of_tasks([[0, 1], [2, 3]])
    seen = []

    class Watch(SupervisedPlugin):
        def after_eval_iteration(self, strategy, **kwargs):
            seen.append(strategy.mb_output.detach())

    strategy = make(method, fresh("ease"), plugins=[Watch()], eval_every=1)
    strategy.train(benchmark.train_stream[0], eval_streams=[])
    strategy.train(benchmark.train_stream[1], eval_streams=[benchmark.test_stream[:1]])
    last = seen[-1]
    assert last.shape[1] == 4 and (last.max(1).values - last.min(1).values < 1e3).all()


def test_joint_has_no_choice_of_module_to_count():
    matrix = AccuracyMatrixPlugin()
    strategy = make("joint", plugins=[matrix])
    benchmark = classic()
    strategy.train(benchmark.train_stream, eval_streams=[])
    strategy.eval(benchmark.test_stream)
    assert matrix.selection_table(2) is None


def test_the_experiences_themselves_do_not_grow():
    benchmark = of_tasks([[0, 1], [2, 3]])
    strategy = make("joint")
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[])
        assert len(experience.dataset) == 16
