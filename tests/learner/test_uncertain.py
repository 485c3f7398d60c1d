"""Answers that say unknown, and the temperature that makes them mean something."""

import numpy as np
import pytest
import torch

from tests.conftest import TinyNet
from tests.learner.pictures import pictures
from tosca_avalanche import ToscaClassifier, TOSCAStrategy, load_backbone
from tosca_avalanche.errors import InputError, ModelError
from tosca_avalanche.modules.tosca_net import ROUTED

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


def trained(label=str, **settings):
    own = {"epochs": 3, "batch_size": 8, "lr": 0.1, "store": None, "scale_init": 8.0, **settings}
    model = ToscaClassifier(load_backbone(TinyNet()), **own)
    for t, classes in enumerate(([0, 1, 2], [3, 4])):
        x, y = pictures(classes, seed=t, size=4)
        model.add_task(x, [label(v) for v in y])
    return model


def literal_entropy(p):
    return -sum(q * np.log(q) for q in p if q > 0) / np.log(len(p))


@pytest.mark.parametrize(("label", "unknown"), [(str, "unknown"), (int, -1)])
def test_unsure_answers_are_unknown(label, unknown):
    model = trained(label)
    x, _ = pictures([0, 3, 7], seed=9, size=4)
    unsure = np.array([literal_entropy(p) for p in model.predict_proba(x)])
    threshold = float(np.median(unsure))
    plain, careful = model.predict(x), model.predict(x, abstain=threshold)
    assert (careful == unknown).tolist() == (unsure > threshold).tolist()
    assert 0 < (careful == unknown).sum() < len(x)
    assert (careful == plain)[unsure <= threshold].all() and unknown not in plain.tolist()
    assert (model.predict(x, abstain=1.0) == plain).all()
    alone = [model.predict(image, abstain=threshold)[0] for image in x]
    assert alone == careful.tolist()


def test_calibration_changes_no_answer_and_gives_likelier_truth():
    model = trained()
    x, y = pictures([0, 1, 2, 3, 4], seed=5, size=4)
    y = [4 - v if i % 4 == 0 else v for i, v in enumerate(y)]  # else the best is certainty
    before, plain = model.predict_proba(x), model.predict(x)
    model.calibrate(x, [str(v) for v in y])
    after = model.predict_proba(x)
    assert (model.predict(x) == plain).all() and model.temperature != 1
    column = [model.classes_.tolist().index(str(v)) for v in y]
    truth = np.arange(len(y)), column
    assert np.log(after[truth]).mean() > np.log(before[truth]).mean()
    around = [model.temperature * f for f in (0.9, 1.1)]
    for temperature in around:
        model.temperature = temperature
        assert np.log(model.predict_proba(x)[truth]).mean() < np.log(after[truth]).mean()


def test_the_temperature_is_saved_with_the_model(tmp_path):
    model = trained()
    x, y = pictures([0, 3], seed=5, size=4)
    model.calibrate(x, [str(v) for v in y]).save(tmp_path / "m")
    backbone = load_backbone(TinyNet())
    again = ToscaClassifier.load(tmp_path / "m", backbone)
    assert again.temperature == model.temperature
    assert (again.predict_proba(x) == model.predict_proba(x)).all()
    TOSCAStrategy.load(tmp_path / "m", backbone, evaluator=None).save(tmp_path / "m2")
    assert ToscaClassifier.load(tmp_path / "m2", backbone).temperature == model.temperature
    assert model.fit(x, [str(v) for v in y]).temperature == 1


def test_what_is_refused():
    model = trained()
    x, y = pictures([0, 3], seed=5, size=4)
    with pytest.raises(ValueError, match="abstain=2"):
        model.predict(x, abstain=2)
    with pytest.raises(InputError, match="learned classes, got \\['7'\\]"):
        model.calibrate(x, ["7"] * len(y))
    with pytest.raises(InputError, match="got none"):
        model.calibrate(torch.zeros(0, 3, 4, 4), [])
    more, labels = pictures([5, 6], seed=3, size=4)
    model.add_task(more, ["unknown" if v == 5 else "6" for v in labels])
    with pytest.raises(InputError, match="'unknown'"):
        model.predict(x, abstain=0.0)


def test_a_routed_model_is_saved_whole_and_its_tasks_stay_together(tmp_path):
    model = trained(**{**ROUTED, "projection": 50})
    x, _ = pictures([0, 3], seed=5, size=4)
    model.save(tmp_path / "m")
    before = {p.name: p.read_bytes() for p in (tmp_path / "m").glob("task-*")}
    again = ToscaClassifier.load(tmp_path / "m", load_backbone(TinyNet()), store=None)
    assert (again.predict_proba(x) == model.predict_proba(x)).all()
    assert again.explain(x[0]).module == model.explain(x[0]).module
    more, labels = pictures([5, 6], seed=3, size=4)
    for one in (model, again):
        one.add_task(more, [str(v) for v in labels])
    assert (again.predict_proba(x) == model.predict_proba(x)).all()
    again.save(tmp_path / "m")
    after = {p.name: p.read_bytes() for p in (tmp_path / "m").glob("task-*")}
    assert before.items() <= after.items() and len(after) == 3
    with pytest.raises(ModelError, match="can't be taken away"):
        again.remove_task(2)
