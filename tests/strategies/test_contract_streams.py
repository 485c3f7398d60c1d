"""What every strategy must do on streams of every shape, and with what it must never look at."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets, benchmark_with_validation_stream
from avalanche.benchmarks.utils import as_classification_dataset
from torch.utils.data import TensorDataset

from tests.conftest import blobs
from tests.strategies.methods import FORGET, JOINT, METHODS, PROMPTS, fresh, make
from tests.strategies.test_contract import learned, outputs
from tests.streams import classic, new_family, of_tasks
from tosca_avalanche.plugins import AccuracyMatrixPlugin

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in ("No loggers", ".*cross-entropy is 0", ".*Gram matrix", "all ", "of .* prompts")
]
methods = pytest.mark.parametrize("method", METHODS)
SIZES = {
    "10+30+30+29+1": [10, 30, 30, 29, 1],
    "2+1+1+1": [2, 1, 1, 1],
}


def increments(sizes):
    labels = iter(range(sum(sizes)))
    return [[next(labels) for _ in range(n)] for n in sizes]


class Untouchable(TensorDataset):
    """Test images that nobody may look at."""

    def __getitem__(self, index):
        raise AssertionError("a test image was read in training")


@methods
def test_training_never_looks_at_the_test_side(method):
    """No epoch, ridge or other setting can come from images that can't be read."""
    sides = []
    for kind in (TensorDataset, Untouchable):
        train, test = [], []
        for labels in ([0, 1], [2, 3]):
            train.append(as_classification_dataset(blobs(0, 8, 1, labels=labels)))
            data = kind(*blobs(0, 4, 2, labels=labels).tensors)
            data.targets = data.tensors[1].tolist()
            test.append(as_classification_dataset(data))
        sides.append(benchmark_from_datasets(train=train, test=test))
    x = blobs(4, 5, 3).tensors[0]
    answers = [outputs(learned(method, fresh(method), b, store=None), x) for b in sides]
    assert torch.equal(*answers)


@methods
@pytest.mark.parametrize("sizes", SIZES)
def test_uneven_increments(method, sizes):
    tasks = increments(SIZES[sizes])
    benchmark = of_tasks(tasks, per_class=2 if len(tasks) == 5 else 6)
    matrix = AccuracyMatrixPlugin()
    strategy = learned(method, fresh(method), benchmark, plugins=[matrix], train_mb_size=16)
    strategy.eval(benchmark.test_stream)
    assert matrix.total[-1].tolist() == [4 * n for n in SIZES[sizes]]
    assert sorted(strategy.model.classes) == list(range(sum(SIZES[sizes])))
    assert outputs(strategy, blobs(3, 1, 1).tensors[0]).shape == (3, sum(SIZES[sizes]))


@methods
@pytest.mark.parametrize("images", [1, 3])
def test_a_task_of_one_or_three_images_is_learned(method, images):
    """Fewer images than a batch holds: none is dropped."""
    small = TensorDataset(*(part[:images] for part in blobs(0, 3, 1, labels=[4]).tensors))
    small.targets = small.tensors[1].tolist()
    sets = [as_classification_dataset(d) for d in (blobs(4, 8, 1), small)]
    benchmark = benchmark_from_datasets(train=sets)
    strategy = learned(method, fresh(method), benchmark)
    assert 4 in strategy.model.classes
    own = outputs(strategy, small.tensors[0])
    if method not in (*PROMPTS, *FORGET, "ease", "mos"):
        assert (own.argmax(1) == 4).any()
    assert (own[:, 4] > own.max(dim=1).values - 1e3).all(), "not the floor of labels never seen"


@methods
def test_one_class_alone_is_said_and_can_be_answered(method):
    """Cross-entropy over one class is 0: no gradient, but the class is known afterwards."""
    benchmark = of_tasks([[3], [1, 2]])
    strategy = make(method)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        strategy.train(benchmark.train_stream[0], eval_streams=[])
    if method not in ("simplecil", "slda"):
        assert any("single class 3" in str(w.message) for w in said)
    x = blobs(0, 4, 5, labels=[3]).tensors[0]
    assert (outputs(strategy, x).argmax(1) == 3).all()
    strategy.train(benchmark.train_stream[1], eval_streams=[])
    if method not in (*PROMPTS, *FORGET):
        assert (outputs(strategy, x).argmax(1) == 3).float().mean() >= 0.5


@methods
def test_a_validation_stream_and_a_single_test_experience(method):
    """Held-out images change nothing but the data; one test experience holds all classes."""
    benchmark = benchmark_with_validation_stream(new_family(), 0.25)
    assert len(benchmark.valid_stream) == 3
    matrix = AccuracyMatrixPlugin()
    strategy = make(method, plugins=[matrix], eval_every=1)
    whole = benchmark_from_datasets(test=[as_classification_dataset(blobs(6, 5, 2))])
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[benchmark.valid_stream])
        strategy.eval(benchmark.valid_stream)
        strategy.eval(whole.test_stream)
    assert matrix.total[:, 0].tolist() == [30, 30, 30], "the validation images are not counted"
    assert matrix.correct[2, 0] > 30 / 6


@pytest.mark.parametrize("method", [m for m in METHODS if m not in JOINT])
def test_all_answers_in_one_task_are_said(method):
    """A collapsed selector looks like a fault of the data: it is named."""
    benchmark = of_tasks([[0, 1], [2, 3]])
    strategy = learned(method, fresh(method), benchmark)
    classify, prompted = strategy.model.classify, strategy.model.forward

    def collapsed(z, *rest, **named):
        out = (prompted if method in PROMPTS else classify)(z, *rest, **named).clone()
        out[:, 2:] = out[:, :2].min() - 1
        return out

    strategy.model.classify = collapsed
    if method in PROMPTS:
        strategy.model.forward = collapsed
    with pytest.warns(UserWarning, match=r"all 16 answers .* task 0 .* images of 2 tasks"):
        strategy.eval(benchmark.test_stream)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="of .* prompts")
        strategy.eval(benchmark.test_stream[:1])


@pytest.mark.parametrize("method", [m for m in METHODS if m not in JOINT])
def test_evaluations_amid_a_task_say_no_collapse(method):
    """What a method adds at the end of a task is not there yet."""
    benchmark = of_tasks([[0, 1], [2, 3]])
    strategy = make(method, eval_every=1)
    strategy.train(benchmark.train_stream[0], eval_streams=[])
    end, amid = strategy._after_eval, []

    def all_in_task_0(**kwargs):
        amid.append(strategy.model.n_tasks == 2)
        strategy._answers = [(torch.zeros_like(right), right) for _, right in strategy._answers]
        end(**kwargs)

    strategy._after_eval = all_in_task_0
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*has collapsed")
        strategy.train(benchmark.train_stream[1], eval_streams=[benchmark.test_stream])
    assert sum(amid) == strategy.train_epochs
    with pytest.warns(UserWarning, match="has collapsed"):
        strategy.eval(benchmark.test_stream)


@methods
def test_what_loaders_hold_can_be_sent_to_a_new_process(method):
    """Start method spawn: whatever a worker gets goes through pickle."""
    benchmark = classic()
    seen = []

    class Sent(AccuracyMatrixPlugin):
        def before_training_epoch(self, strategy, **kwargs):
            data = getattr(strategy.dataloader, "dataset", None)
            if data is not None:
                seen.append(len(pickle.loads(pickle.dumps(data))))

    views = {} if method in ("simplecil", "slda") else {"train_views": "fresh"}
    strategy = make(method, plugins=[Sent()], cache=False, **views)
    strategy.train(benchmark.train_stream[0], eval_streams=[])
    assert seen and set(seen) == {24}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_workers_that_are_spawned_change_nothing(method, tmp_path):
    code = (
        "import multiprocessing, sys\n"
        "import torch\n"
        "from tests.strategies.methods import fresh, make\n"
        "from tests.conftest import blobs\n"
        "from tests.streams import new_family\n"
        "if __name__ == '__main__':\n"
        "    multiprocessing.set_start_method('spawn')\n"
        "    strategy = make(sys.argv[1], fresh(sys.argv[1]), store=None)\n"
        "    for e in new_family().train_stream[:2]:\n"
        "        strategy.train(e, eval_streams=[], num_workers=1)\n"
        "    strategy.model.eval()\n"
        "    with torch.no_grad():\n"
        "        torch.save(strategy.model(blobs(6, 9, 3).tensors[0]), sys.argv[2])\n"
    )
    script = tmp_path / "spawned.py"
    script.write_text(code)
    out = tmp_path / "out.pt"
    root = str(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    environment = {**os.environ, "PYTHONPATH": root}
    subprocess.run([sys.executable, str(script), method, str(out)], check=True, env=environment)
    strategy = make(method, fresh(method), store=None)
    for experience in new_family().train_stream[:2]:
        strategy.train(experience, eval_streams=[])
    assert torch.equal(torch.load(out), outputs(strategy, blobs(6, 9, 3).tensors[0]))
    assert method in METHODS and (method not in JOINT or strategy.model.n_tasks == 1)
