"""Adapters of the first task: trained once, frozen, and part of the backbone ever after."""

import pytest
import torch
import torch.nn.functional as F

from tests.strategies.methods import fresh, make
from tests.streams import classic, of_tasks
from tosca_avalanche.features import FeatureStore

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


@pytest.mark.parametrize("method", ["aper", "ranpac"])
def test_adapters_learn_on_the_first_experience_alone(method):
    benchmark = of_tasks([[0, 1], [2, 3]])
    strategy = make(method, store=None)
    start = [p.clone() for p in strategy.model.adapters.parameters()]
    strategy.train(benchmark.train_stream[0], eval_streams=[])
    first = [p.clone() for p in strategy.model.adapters.parameters()]
    assert not all(torch.equal(a, b) for a, b in zip(start, first, strict=True))
    assert not strategy.model.adapting and strategy.optimizer is not None
    strategy.train(benchmark.train_stream[1], eval_streams=[])
    second = list(strategy.model.adapters.parameters())
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert strategy.optimizer is None


def test_apers_score_is_one_cosine_over_the_raw_concatenation():
    benchmark = of_tasks([[0, 1], [2, 3]])
    strategy = make("aper")
    strategy.train(benchmark.train_stream, eval_streams=[])
    model = strategy.model.eval()
    vit = fresh("aper").module

    def features(dataset, label=None):
        items = [i[0] for i in dataset if label is None or int(i[1]) == label]
        x = torch.stack(items)
        return torch.cat([vit(x), model.extractors[1](x)], dim=1).detach(), x

    query, x = features(benchmark.test_stream[1].dataset)
    for label in range(4):
        prototype = features(benchmark.train_stream[label // 2].dataset.eval(), label)[0].mean(0)
        expected = F.cosine_similarity(query, prototype[None])
        torch.testing.assert_close(model(x)[:, label], expected, atol=1e-5, rtol=1e-4)


def test_ranpac_without_adapters_needs_no_transformer_and_trains_nothing(backbone):
    strategy = make("ranpac", backbone, petl=False)
    strategy.train(classic().train_stream, eval_streams=[])
    assert strategy.model.adapters is None and strategy.optimizer is None
    assert strategy.model.backbone is backbone


@pytest.mark.parametrize("method", ["aper", "ranpac"])
def test_adapted_features_are_stored_and_images_pass_once(method, tmp_path):
    benchmark = classic()
    strategy = make(method, store=FeatureStore(tmp_path), first_epochs=2)
    strategy.train(benchmark.train_stream, eval_streams=[])
    for _ in range(3):
        strategy.eval(benchmark.test_stream)
    # 72 training and 30 test images; the two epochs on the first task go by the adapters
    assert strategy.model.images_passed == (1 + (method == "aper")) * (72 + 30)


def test_the_authors_optimiser():
    strategy = make("aper", first_epochs=20)
    strategy.first_epochs = 3
    strategy.train(classic().train_stream[0], eval_streams=[])
    group = strategy.optimizer.param_groups[0]
    assert (group["initial_lr"], group["momentum"], group["weight_decay"]) == (0.01, 0.9, 5e-4)
    assert group["lr"] == pytest.approx(0, abs=1e-12)
    shapes = [tuple(p.shape) for p in group["params"]]
    assert shapes.count(()) == 1 and (2, 32) in shapes, "sigma and the proxy's rows learn as well"
    assert len(shapes) == 2 * 4 + 2
    assert strategy.model.proxy is None, "and are thrown away"
