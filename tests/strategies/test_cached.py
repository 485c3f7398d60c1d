"""The fast path: equal results, no image passed twice, and doubts resolved on the safe side."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.benchmarks.utils.transform_groups import TransformGroups
from avalanche.benchmarks.utils.transforms import MultiParamTransformCallable
from torch.utils.data import Subset

from tests.conftest import TinyNet, blobs
from tests.strategies.methods import JOINT, METHODS, fresh, make
from tests.streams import STREAMS, classic, of_tasks
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks import LabelledImages, digits, mixed_experience
from tosca_avalanche.features import FeatureStore
from tosca_avalanche.plugins import AccuracyMatrixPlugin
from tosca_avalanche.strategies.cached import FeatureCache, _ends, _Known

pytestmark = pytest.mark.filterwarnings("ignore:No loggers", "ignore:.*cross-entropy is 0")


def work(method, benchmark, backbone=None, **settings):
    matrix = AccuracyMatrixPlugin()
    backbone = fresh(method) if backbone is None else backbone
    strategy = make(method, backbone, plugins=[matrix], **settings)
    for t, experience in enumerate(benchmark.train_stream):
        strategy.train(experience, eval_streams=[])
        strategy.eval(benchmark.test_stream[: t + 1])
    return strategy, matrix


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stream", STREAMS)
def test_equal_to_the_uncached_run(method, stream):
    cached, a = work(method, STREAMS[stream](), store=None)
    plain, b = work(method, STREAMS[stream](), cache=False)
    assert np.array_equal(a.correct, b.correct) and np.array_equal(a.total, b.total)
    assert a.modules == b.modules
    for p, q in zip(
        cached.model.state_dict().values(), plain.model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(p, q, atol=1e-5, rtol=1e-4)
    if cached.model.extractors:
        assert plain.model.images_passed > cached.model.images_passed


@pytest.mark.parametrize("stream", STREAMS)
def test_every_kind_of_benchmark_takes_the_fast_reading(stream):
    cache = FeatureCache(FeatureStore(None))
    benchmark = STREAMS[stream]()
    for experience in (*benchmark.train_stream, *benchmark.test_stream):
        data = experience.dataset.eval()
        plan = cache._by_source(data, _ends(data))
        assert plan is not None and not plan.random
        features = cache.get(load_backbone(TinyNet()), data)
        items = [data[i] for i in range(len(data))]
        assert features.y.tolist() == [int(i[1]) for i in items]
        expected = load_backbone(TinyNet())(torch.stack([i[0] for i in items]))
        torch.testing.assert_close(features.z, expected)
        if len(items[0]) == 3:
            assert features.t.tolist() == [int(i[2]) for i in items]


def test_each_image_passes_once_and_a_second_seed_passes_none(tmp_path):
    store = FeatureStore(tmp_path)
    first, _ = work("tosca", classic(), store=store)
    assert first.model.images_passed == 6 * (12 + 5)
    again, _ = work("tosca", classic(), store=FeatureStore(tmp_path), seed=5)
    assert again.model.images_passed == 0
    other, _ = work("simplecil", classic(tasks=2), store=FeatureStore(tmp_path))
    assert other.model.images_passed == 0, "methods and splits share it"


def test_digits_streams_share_features_across_splits_orders_and_mixtures():
    backbone = load_backbone("tiny_vit_64", weights="random")
    store = FeatureStore(None)
    cache = FeatureCache(store)
    benchmark = digits(backbone.transforms, classes_per_task=5)
    for experience in benchmark.test_stream:
        cache.get(backbone, experience.dataset)
    passed = backbone.images_passed
    assert passed == 450
    other = digits(backbone.transforms, classes_per_task=3, class_order_seed=7)
    for data in (*[e.dataset for e in other.test_stream],
                 mixed_experience(other.test_stream, "shuffled").dataset.eval()):  # fmt: skip
        assert cache.get(backbone, data) is not None
    assert backbone.images_passed == passed


@pytest.mark.parametrize("method", [m for m in METHODS if m not in JOINT])
def test_earlier_images_are_let_go(method):
    """Images in memory die with their task: nothing here holds them, the cache included."""
    held = []

    def watched(*args, **kwargs):
        data = blobs(*args, **kwargs)
        held.extend(map(weakref.ref, (data, data.tensors[0])))
        return data

    strategy = make(method, store=None)
    for labels in ([0, 1], [2, 3], [4]):
        before = len(held)
        benchmark = of_tasks([labels], train=watched, test=watched)
        strategy.train(benchmark.train_stream[0], eval_streams=[])
        strategy.eval(benchmark.test_stream)
        del benchmark
        gc.collect()
        assert len(held) == before + 4
        assert [r() for r in held[:before]] == [None] * before


def test_the_id_of_a_data_set_that_is_gone_is_nobodys():
    """Python gives the id of what is gone to another object."""
    known, data, other = _Known(), blobs(1, 2, 0), blobs(1, 2, 1)
    assert known.get([data], "items", lambda: 0) == known.get([data], "items", lambda: -1) == 0
    known._kept = {(id(other), "items"): kept for kept in known._kept.values()}
    del data
    gc.collect()
    assert known.get([other], "items", lambda: 1) == 1
    assert known.get([blobs(1, 2, 2)], "items", lambda: 2) == 2
    gc.collect()
    assert known.get([other], "transform", lambda: 3) == 3
    assert len(known._kept) == 2, "nothing is kept of what is gone"
    for end in (1, 2):  # a list can't be watched
        assert known.get([["image"]], "items", lambda end=end: end) == end


def noisy(x):
    return x + torch.randn(x.shape)


def with_groups(train, evaluation, data=None):
    groups = TransformGroups({"train": (train, None), "eval": (evaluation, None)})
    return as_classification_dataset(blobs(3, 6, 0) if data is None else data, groups)


def test_a_random_evaluation_transform_is_said_and_not_cached():
    benchmark = benchmark_from_datasets(train=[with_groups(None, noisy)])
    strategy = make("simplecil", load_backbone(TinyNet()), store=None)
    with pytest.warns(UserWarning, match="evaluation transform of this benchmark is random"):
        strategy.train(benchmark.train_stream[0], eval_streams=[])
    passed = strategy.model.images_passed
    with pytest.warns() as record:
        import warnings

        warnings.warn("one", stacklevel=1)
        strategy.eval(benchmark.train_stream)
    assert len(record) == 1, "it is said once"
    assert strategy.model.images_passed == passed + 18


def test_another_transform_is_another_feature():
    store, backbone = FeatureStore(None), load_backbone(TinyNet())
    cache = FeatureCache(store)
    plain = cache.get(backbone, with_groups(None, None).eval()).z
    double = cache.get(backbone, with_groups(None, lambda x: 2 * x).eval()).z
    torch.testing.assert_close(double, backbone(2 * blobs(3, 6, 0).tensors[0]))
    assert not torch.equal(plain, double)


def test_data_sets_that_can_not_be_read_to_the_bottom_are_keyed_by_their_images():
    """Two leaves, and transforms that look at the label: slower, and still right."""
    cache = FeatureCache(FeatureStore(None))
    backbone = load_backbone(TinyNet())
    two = as_classification_dataset(blobs(3, 4, 0)).concat(
        as_classification_dataset(blobs(3, 4, 1))
    )
    assert cache._by_source(two.eval(), _ends(two.eval())) is None
    expected = torch.cat([blobs(3, 4, s).tensors[0] for s in (0, 1)])
    torch.testing.assert_close(cache.get(backbone, two.eval()).z, backbone(expected))

    def by_label(x, y):
        return x * (1 + y), y

    step = MultiParamTransformCallable(by_label)

    data = as_classification_dataset(blobs(3, 4, 0), TransformGroups({"train": None, "eval": step}))
    assert cache._by_source(data.eval(), _ends(data.eval())) is None
    x, y = blobs(3, 4, 0).tensors
    torch.testing.assert_close(
        cache.get(backbone, data.eval()).z, backbone(x * (1 + y).reshape(-1, 1, 1, 1))
    )


def test_plain_subsets_are_read_through():
    base = blobs(3, 6, 0)
    part = Subset(base, [4, 9, 17])
    part.targets = [base.targets[i] for i in part.indices]
    cache = FeatureCache(FeatureStore(None))
    data = as_classification_dataset(part).eval()
    assert cache._by_source(data, _ends(data)) is not None
    backbone = load_backbone(TinyNet())
    torch.testing.assert_close(cache.get(backbone, data).z, backbone(base.tensors[0][part.indices]))


def views(n, **settings):
    def benchmark():
        return benchmark_from_datasets(train=[with_groups(noisy, None)])

    backbone = load_backbone(TinyNet())
    strategy = make("tosca", backbone, train_views=n, train_epochs=4, store=None, **settings)
    strategy.train(benchmark().train_stream[0], eval_streams=[])
    return strategy


def test_stored_views_are_cycled_and_passed_once():
    for n in (0, 2, 3):
        passed = views(n).model.images_passed
        # n views to train on, and the evaluation view for the prototypes
        assert passed == 18 * (n + 1 if n else 1)
    weights = [views(n).model.bank.current.W1.detach() for n in (2, 2, 4, "fresh")]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2]) and not torch.equal(weights[2], weights[3])
    with pytest.raises(ValueError, match="needs cache=True"):
        views(2, cache=False)


def test_a_view_of_an_image_does_not_depend_on_its_neighbours():
    cache, backbone = FeatureCache(FeatureStore(None)), load_backbone(TinyNet())
    whole = with_groups(noisy, None).train()
    part = whole.subset([11, 2])
    torch.testing.assert_close(
        cache.get(backbone, part, view=1).z,
        FeatureCache(FeatureStore(None)).get(backbone, whole, view=1).z[[11, 2]],
    )


def test_the_width_of_a_module_is_learned_through_the_store_too():
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 10))
    strategy, _ = work("tosca", classic(), backbone=module, store=None)
    assert strategy.model.backbone.embed_dim == 10


def bright(path):
    return np.full((4, 4, 3), 250, np.uint8)


def dark(path):
    return np.full((4, 4, 3), 10, np.uint8)


def test_another_decoder_of_the_same_file_is_another_feature(tmp_path):
    """Named functions by their names, lambdas by what they give."""
    (tmp_path / "x.png").write_bytes(b"one file")
    cache, backbone = FeatureCache(FeatureStore(None)), load_backbone(TinyNet())

    def to_tensor(image):
        return torch.as_tensor(image).permute(2, 0, 1) / 255

    for a, b in ((bright, dark), (lambda p: bright(p), lambda p: dark(p))):
        features = []
        for load in (a, b, a):
            data = LabelledImages([tmp_path / "x.png"], [0], load)
            groups = TransformGroups({"train": (to_tensor, None), "eval": (to_tensor, None)})
            features.append(cache.get(backbone, as_classification_dataset(data, groups).eval()).z)
        assert not torch.allclose(features[0], features[1])
        assert torch.equal(features[0], features[2])
