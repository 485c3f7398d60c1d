"""The prompt methods in their loop: queries from the store, settings, choices counted."""

import math
import warnings

import pytest
import torch

from tests.conftest import blobs
from tests.strategies.methods import PROMPTS, fresh, make
from tests.streams import classic, of_tasks
from tosca_avalanche.features import FeatureStore
from tosca_avalanche.plugins import AccuracyMatrixPlugin

pytestmark = pytest.mark.filterwarnings("ignore:No loggers", "ignore:.*cross-entropy is 0")


@pytest.mark.parametrize("method", PROMPTS)
def test_each_query_is_one_pass_ever(method, tmp_path):
    """72 training and 30 test images, three evaluations, two epochs."""
    benchmark = classic()
    strategy = make(method, store=FeatureStore(tmp_path))
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[])
        strategy.eval(benchmark.test_stream)
    model = strategy.model
    assert model.backbone.images_passed == 72 + 30
    assert model.images_prompted == 3 * 30 and model.images_trained == 2 * 72
    again = make(method, store=FeatureStore(tmp_path), seed=3)
    again.train(benchmark.train_stream, eval_streams=[])
    assert again.model.backbone.images_passed == 0


@pytest.mark.parametrize("method", PROMPTS)
def test_the_query_that_training_gets_is_the_images_own(method):
    """Also with workers, in a shuffled order, and for random views."""
    seen = []

    for views in (0, "fresh"):
        strategy = make(method, store=None, train_views=views)
        prompted = strategy.model.prompted

        def watched(x, query, prompted=prompted, strategy=strategy):
            seen.append((query - strategy.model.backbone(x)).abs().max().item())
            return prompted(x, query)

        strategy.model.prompted = watched
        strategy.train(classic().train_stream[0], eval_streams=[], num_workers=2)
        strategy.eval(classic().test_stream, num_workers=2)
    assert len(seen) > 8 and max(seen) < 1e-5


@pytest.mark.parametrize("method", ["l2p", "dualprompt"])
def test_batchwise_is_the_toolboxes_vote_and_depends_on_the_batch(method):
    strategy = make(method, batchwise=True, train_epochs=0)
    strategy.train(of_tasks([[0, 1], [2, 3], [4, 5]]).train_stream, eval_streams=[])
    x = blobs(6, 8, 3).tensors[0]
    model = strategy.model.eval()
    with torch.no_grad():
        for key, query in zip(model.keys, model.backbone(x[::8]), strict=False):
            key.copy_(query)
        model(x)
        assert len(model.last_prompts.unique(dim=0)) == 1, "one choice serves the batch"
        votes = set()
        for part in x.split(4):
            model(part)
            votes.add(tuple(model.last_prompts[0].tolist()))
    assert len(votes) > 1


def test_settings_of_l2p():
    strategy = make("l2p", fresh("l2p"), base_lr=0.03, train_mb_size=16, pull=0.1)
    strategy.train(classic().train_stream[0], eval_streams=[])
    (group,) = strategy.optimizer.param_groups
    assert type(strategy.optimizer) is torch.optim.Adam
    assert group["lr"] == 1.875e-3, "0.03 * 16 / 256, constant"
    assert group["betas"] == (0.9, 0.999) and group["weight_decay"] == 0
    assert {tuple(p.shape) for p in group["params"]} == {(6, 2, 32), (6, 32), (2, 32), (2,)}
    assert strategy.clip is None
    google = make("l2p", preset="google", length=None, top_k=None, pool=10)
    net = google.model
    assert (net.top_k, net.pull, net.layout, google.clip) == (4, 1.0, "google", 1.0)
    assert net.prompts.shape == (10, 10, 32) and 0 <= net.prompts.min() < net.keys.max() <= 0.01
    assert net.head_init == "zeros"
    mine = make("l2p", preset="google", length=3, top_k=2, pull=0.5, clip=9.0)
    assert (mine.model.top_k, mine.model.pull, mine.clip) == (2, 0.5, 9.0)
    with pytest.raises(ValueError, match="preset='jax'"):
        make("l2p", preset="jax")
    assert make("l2p", lr=0.1).lr == 0.1, "a rate of one's own is not scaled"


def test_settings_of_dualprompt():
    strategy = make("dualprompt", lr=1e-3, train_mb_size=24)
    strategy.train(classic().train_stream, eval_streams=[])
    (group,) = strategy.optimizer.param_groups
    assert group["lr"] == 1e-3 and type(strategy.optimizer) is torch.optim.Adam
    assert len(group["params"]) == 5, "general, the task's expert and key, head"


def test_codas_rate_by_epoch():
    """lr(e) = 1e-3 cos(99 pi max(0, e - 1) / (200 (E - 1)))."""
    strategy = make("codaprompt", lr=1e-3, train_epochs=5)
    rates = []
    schedule = strategy.default_scheduler(
        torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], 1e-3), 5
    )
    for _ in range(5):
        rates.append(schedule.get_last_lr()[0])
        schedule.optimizer.step()
        schedule.step()
    expected = [1e-3 * math.cos(99 * math.pi * max(0, e - 1) / (200 * 4)) for e in range(5)]
    assert rates == pytest.approx(expected) and rates[0] == rates[1] == 1e-3


@pytest.mark.parametrize(("tasks", "components"), [(3, 33), (1, 100)])
def test_codas_components_are_shared_by_the_streams_tasks(tasks, components):
    benchmark = classic(tasks=tasks)
    strategy = make("codaprompt", components=None, train_epochs=1)
    strategy.train(benchmark.train_stream[:1], eval_streams=[])
    assert strategy.model.rows("K").shape[1] == components
    other = make("codaprompt", components=None)
    other.model.restore(*strategy.model.state())
    assert other.model.components == components


def test_a_task_smaller_than_a_batch_still_trains():
    strategy = make("codaprompt", train_mb_size=128)
    strategy.train(of_tasks([[0, 1]]).train_stream, eval_streams=[])
    assert strategy.model.images_trained == 2 * 16


def test_gradients_are_clipped_where_it_is_asked_for():
    norms = []
    for clip in (None, 0.01):
        strategy = make("l2p", clip=clip)
        strategy.train(classic().train_stream[0], eval_streams=[])
        grads = [p.grad for p in strategy.optimizer.param_groups[0]["params"]]
        norms.append(torch.cat([g.flatten() for g in grads]).norm().item())
    assert norms[0] > 0.01 and norms[1] == pytest.approx(0.01, rel=1e-3)


def test_choices_are_counted_per_task():
    matrix = AccuracyMatrixPlugin()
    strategy = make("l2p", plugins=[matrix])
    benchmark = of_tasks([[0, 1], [2, 3]])
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[])
        strategy.eval(benchmark.test_stream)
    model = strategy.model.eval()
    for i, experience in enumerate(benchmark.test_stream):
        with torch.no_grad():
            model(torch.stack([item[0] for item in experience.dataset]))
        counts = torch.bincount(model.last_prompts.flatten(), minlength=6)
        assert matrix.prompts[1, i] == counts.tolist() and counts.sum() == 8 * 2
    again = AccuracyMatrixPlugin()
    again.restore(matrix.state())
    assert again.prompts == matrix.prompts


def test_few_prompts_in_use_are_said():
    strategy = make("l2p", pool=9, top_k=2)
    benchmark = classic()
    strategy.train(benchmark.train_stream[0], eval_streams=[])
    query = strategy.model.backbone(benchmark.test_stream[0].dataset[0][0][None])
    with torch.no_grad():  # two keys near every query, the others opposite
        strategy.model.keys[:2], strategy.model.keys[2:] = query[0], -query[0]
    with pytest.warns(UserWarning, match=r"of 9 prompts only 2 were ever chosen"):
        strategy.eval(benchmark.test_stream[:1])
    usual = make("l2p")
    usual.train(benchmark.train_stream[0], eval_streams=[])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="No loggers")
        usual.eval(benchmark.test_stream)
