"""The classifier learns what the strategy learns, and forgets what it is told to."""

import dataclasses
import inspect
import json
import pickle

import numpy as np
import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_classification_dataset
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict, cross_val_score

from tests.conftest import TinyNet
from tests.learner.pictures import pictures, write_folder
from tosca_avalanche import ToscaClassifier, ToscaNet, TOSCAStrategy, load_backbone
from tosca_avalanche.benchmarks.class_incremental import LabelledImages, as_is, with_transforms
from tosca_avalanche.errors import InputError, ModelError, TrainingError
from tosca_avalanche.learner import Recipe
from tosca_avalanche.learner.parts import SETTINGS
from tosca_avalanche.modules.tosca_net import ROUTED

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")
QUICK = {"epochs": 3, "batch_size": 8, "lr": 0.1, "store": None, "seed": 4}
TASKS = ([0, 1, 2], [3, 4], [1, 5])


def trained(tasks=TASKS, **settings):
    model = ToscaClassifier(load_backbone(TinyNet()), **{**QUICK, **settings})
    for t, classes in enumerate(tasks):
        model.add_task(*pictures(classes, seed=t, size=4))
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"head_init": "prototype", "ce_scope": "task", "sparsity": "proximal", "l1": 0.01},
        {"old_rows": "trainable", "head_init": "zeros", "first_init": "torch"},
        {"selection": "entropy-batch", "norm": "pre", "bottleneck": 3, "scale_init": 8.0},
        {**ROUTED, "projection": 50},
    ],
    ids=lambda s: "-".join(map(str, s.values())) or "defaults",
)
def test_the_same_predictions_as_the_strategy(settings):
    sets = [pictures(classes, seed=t, size=4) for t, classes in enumerate(TASKS)]
    data = [LabelledImages(x, y.tolist(), as_is) for x, y in sets]
    backbone = load_backbone(TinyNet())
    stream = benchmark_from_datasets(
        train=[with_transforms(d, backbone.transforms, evaluation=False) for d in data]
    ).train_stream
    options = {**QUICK, **settings}
    renamed = {"epochs": "train_epochs", "batch_size": "train_mb_size"}
    strategy = TOSCAStrategy(
        backbone, evaluator=None, **{renamed.get(k, k): v for k, v in options.items()}
    )
    strategy.train(stream, eval_streams=[])
    model = trained(**settings)
    ours, theirs = model.net.state()[0], strategy.model.state()[0]
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)
    x, _ = pictures(range(6), seed=9, size=4)
    z = model.features(x)
    strategy.model.eval()
    with torch.no_grad():
        wanted = torch.cat([strategy.model.classify(part).argmax(1) for part in z.split(48)])
    assert np.array_equal(model.predict(x), wanted.numpy())
    assert len(set(model.predict(x).tolist())) > 2


def test_labels_come_back_as_they_were_given():
    x, y = pictures([0, 1, 2], size=4)
    for given, kind in ((np.array(["b", "a", "c"])[y], str), (np.array([7, -3, 10**9])[y], int)):
        model = ToscaClassifier(load_backbone(TinyNet()), **QUICK).fit(x, given)
        predicted = model.predict(x)
        assert set(predicted.tolist()) <= set(given.tolist())
        assert {type(v) for v in predicted.tolist()} == {kind}
        assert model.classes_.tolist() == sorted(set(given.tolist()))
        assert model.score(x, given) > 0.8
        p = model.predict_proba(x)
        assert p.shape == (18, 3) and np.allclose(p.sum(1), 1)
        assert np.array_equal(model.classes_[p.argmax(1)], predicted)
        assert model.predict(x[0]).shape == (1,)
        assert model.predict([]).shape == (0,) and model.predict_proba([]).shape == (0, 3)


def test_scikit_learns_manners():
    x, y = pictures([0, 1], size=4)
    model = clone(ToscaClassifier(load_backbone(TinyNet()), **QUICK))
    assert model.set_params(epochs=2).get_params()["epochs"] == 2
    with pytest.raises(ModelError, match="nothing was learned"):
        model.predict(x)
    first = model.fit(x, y).predict_proba(x)
    model.partial_fit(*pictures([2, 3], size=4), classes=[0, 1, 2, 3])
    assert model.n_tasks == 2 and model.task_labels == [[0, 1], [2, 3]]
    assert np.array_equal(model.fit(x, y).predict_proba(x), first), "fit starts anew"
    assert model.n_tasks == 1


def test_scikit_learns_tools_take_it():
    x, y = pictures([0, 1, 2], size=4)
    model = ToscaClassifier(load_backbone(TinyNet()), **QUICK)
    z = model.features(x).double().numpy()
    names = np.array(["b", "a", "c"])[y]
    assert cross_val_score(model, z, names, cv=3).mean() > 0.8
    p = cross_val_predict(model, x, names, cv=3, method="predict_proba")
    assert (model.fit(x, names).classes_[p.argmax(1)] == names).mean() > 0.8
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.predict_proba(x), model.predict_proba(x))


def test_it_has_every_setting_of_the_net_and_of_training():
    ours = inspect.signature(ToscaClassifier.__init__).parameters
    net = inspect.signature(ToscaNet.__init__).parameters
    for name in SETTINGS:
        assert ours[name].default == net[name].default, name
    for field in dataclasses.fields(Recipe):
        assert ours[field.name].default == field.default, field.name


def test_a_folder_a_data_set_and_features_are_ways_in(tmp_path):
    x, y = pictures([0, 1], size=16)
    root = write_folder(tmp_path, {0: "cat", 1: "dog"})
    names = np.array(["cat", "dog"])[y]
    backbone = load_backbone("tiny_vit_64")
    options = {**QUICK, "bottleneck": 2}
    by_array = ToscaClassifier(backbone, **options).fit(x, names)
    by_folder = ToscaClassifier(backbone, **options).fit(root)
    by_data = ToscaClassifier(backbone, **options).fit(Pairs(x, y))
    by_features = ToscaClassifier(backbone, **options).fit(by_array.features(x), names)
    wanted = by_array.predict_proba(x)
    for model in (by_folder, by_data, by_features):
        assert np.array_equal(model.predict_proba(x), wanted)
    assert (
        by_data.predict(x).dtype == np.int64 and by_folder.predict(root).tolist() == names.tolist()
    )
    assert by_folder.score(root) == by_array.score(x, names) == 1


class Pairs(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return torch.from_numpy(self.x[index]).permute(2, 0, 1), int(self.y[index])


def test_each_image_passes_the_backbone_once():
    x, y = pictures([0, 1], size=4)
    backbone = load_backbone(TinyNet())
    model = ToscaClassifier(backbone, **QUICK).fit(x, y)
    passed = backbone.images_passed
    model.predict(x / 255), model.predict_proba(x[3]), model.explain(x[0]), model.fit(x, y)
    assert passed <= len(x) + 1 and backbone.images_passed == passed
    uncached = ToscaClassifier(backbone, **{**QUICK, "cache": False}).fit(x, y)
    assert np.array_equal(uncached.predict_proba(x), model.predict_proba(x))
    assert backbone.images_passed >= passed + 2 * len(x)


def test_one_image_at_a_time_gives_the_same_answers():
    model = trained()
    x, _ = pictures(range(6), seed=9, size=4)
    whole = model.predict(x).tolist()
    assert [model.predict(one)[0] for one in x] == whole
    assert model.predict(x[::-1]).tolist() == whole[::-1]


def test_an_explanation():
    model = trained()
    image = pictures([3], 1, seed=9, size=4)[0][0]
    why = model.explain(image)
    p = np.sort(model.predict_proba(image)[0])
    assert why.label == model.predict(image)[0] and why.label != why.runner_up
    assert why.probability == pytest.approx(p[-1]) and why.margin == pytest.approx(p[-1] - p[-2])
    z = model.features(image)
    for t, luca in enumerate(model.net.bank.luca):
        with torch.no_grad():
            q = torch.softmax(model.net.merge_rows(model.net.head(luca(z))), 1)
        assert why.entropies[t] == pytest.approx(-float((q * q.log()).sum()), rel=1e-5)
    assert why.module == int(np.argmin(why.entropies)) and why.entropy_margin >= 0
    assert why.entropy_margin == pytest.approx(np.diff(np.sort(why.entropies))[0])
    assert len(why.nearest) == 5 and why.nearest[0].label == why.label
    rows = [(label, t) for t, own in enumerate(model.task_labels) for label in own]
    assert {(n.label, n.task) for n in model.explain(image, nearest=99).nearest} == set(rows)
    json.dumps([*why.entropies, why.label, why.runner_up])
    with pytest.raises(InputError, match="one image, got 2"):
        model.explain(pictures([3], 2, size=4)[0])
    alone = trained(tasks=[[0, 1]]).explain(image)
    assert alone.entropy_margin is None and alone.module == 0


def test_more_data_for_a_known_class_gives_it_one_more_row():
    before, after = trained(TASKS[:2]), trained()
    assert after.net.row_labels == [0, 1, 2, 3, 4, 1, 5] and len(after.net.head) == 7
    assert after.classes_.tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.equal(after.net.head.rows[:5], before.net.head.rows), "old rows stay"
    z = after.features(pictures([1], 4, seed=7, size=4)[0])
    with torch.no_grad():
        rows = after.net.head(after.net.bank(z))
    merged = after.net.module_logits(z)
    assert torch.equal(merged[..., 1], torch.maximum(rows[..., 1], rows[..., 5]))


def same(a, b) -> bool:
    ours, theirs = a.net.state()[0], b.net.state()[0]
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def test_removing_the_newest_task_is_never_having_learned_it():
    x, _ = pictures(range(6), seed=9, size=4)
    model, never = trained(), trained(TASKS[:2])
    passed = model.net.images_passed
    assert same(model.remove_task(2), never) and model.net.images_passed == passed > 0
    assert model.task_labels == [[0, 1, 2], [3, 4]]
    assert np.array_equal(model.predict_proba(x), never.predict_proba(x))
    again = pictures([1, 5], seed=2, size=4)
    assert same(model.add_task(*again), trained()), "and it can be learned again"
    assert model.remove_task(2).remove_task(1).remove_task(0).n_tasks == 0
    assert same(model.add_task(*pictures(TASKS[0], seed=0, size=4)), trained(TASKS[:1]))


@pytest.mark.parametrize("old_rows", ["frozen", "trainable"])
def test_removing_an_earlier_task_leaves_the_others_as_they_are(old_rows):
    x, _ = pictures(range(6), seed=9, size=4)
    model = trained(old_rows=old_rows)
    z = model.features(x)
    with torch.no_grad():
        rows = model.net.head(model.net.bank(z))
        model.remove_task(0)
        left = model.net.head(model.net.bank(z))
    # class 1 keeps the row of the last task; 0 and 2 are gone
    torch.testing.assert_close(left, rows[1:, :, 3:])
    assert model.classes_.tolist() == [1, 3, 4, 5] and model.task_labels == [[3, 4], [1, 5]]
    assert set(model.predict(x).tolist()) <= {1, 3, 4, 5}
    model.add_task(*pictures([0, 6], size=4))
    assert model.classes_.tolist() == [0, 1, 3, 4, 5, 6]
    for t in (3, -1):
        with pytest.raises(InputError, match=f"no task {t}"):
            model.remove_task(t)


def test_a_task_that_fails_leaves_the_classifier_as_it_was(monkeypatch):
    model, whole = trained(TASKS[:2]), trained(TASKS[:2])
    model.lr = 1e38
    with pytest.raises(TrainingError, match=r"task 2, epoch \d, batch \d"):
        model.add_task(*pictures([6, 7], size=4))
    assert same(model, whole) and model.labels.by_number == whole.labels.by_number

    def interrupt(*rest):
        raise KeyboardInterrupt

    monkeypatch.setattr(ToscaNet, "finish_task", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(lr=0.1).add_task(*pictures([6, 7], size=4))
    assert same(model, whole) and model.n_tasks == 2


def test_wrong_calls_are_named():
    model = ToscaClassifier(load_backbone(TinyNet()), **QUICK)
    x, y = pictures([0, 1], size=4)
    fresh = ToscaClassifier(load_backbone(TinyNet()), **QUICK)
    for call, message in (
        (lambda: model.fit(x, y[:-1]), "12 images but 11 labels"),
        (lambda: model.fit(x[:0], []), "at least one image"),
        (lambda: model.fit(np.ones((4, 31)), [0, 1, 0, 1]), r"features \[N, 32\].*\(4, 31\)"),
        (lambda: model.fit(np.full((2, 32), np.nan), [0, 1]), "NaN"),
        (lambda: fresh.fit([x[0], pictures([0], 1, size=8)[0][0]], [0, 1]), "different sizes"),
        (lambda: ToscaClassifier(selection="oracle"), "oracle"),
        (lambda: ToscaClassifier(selection="entropi"), "entropi"),
        (lambda: ToscaClassifier(epochs=-1), "epochs"),
        (lambda: ToscaClassifier("tiny_vit_65"), "tiny_vit_65"),
    ):
        with pytest.raises((InputError, ValueError), match=message):
            call()
    with pytest.warns(UserWarning, match="single class cat"):
        model.fit(x[:3], ["cat"] * 3)
    with pytest.raises(InputError, match="str so far"):
        model.add_task(x, y)


def test_names():
    x, y = pictures([0, 1], size=4)
    model = ToscaClassifier(load_backbone(TinyNet()), **QUICK).fit(x, y, names=["cat", "dog"])
    assert model.class_names == ["cat", "dog"] and model.predict(x[0])[0] in (0, 1)


def test_data_of_avalanche_go_in_as_they_are():
    x, y = pictures([0, 1], size=4)
    data = as_classification_dataset(LabelledImages(x, y.tolist(), as_is))
    model = ToscaClassifier(load_backbone(TinyNet()), **QUICK).fit(data)
    assert model.score(x, y) > 0.8
