"""The study of selection rules: its rules by hand, and its winner against the product's."""

import argparse

import numpy as np
import pandas as pd
import pytest
import torch

from experiments import selection_study
from experiments.selection_report import paired, write_report
from experiments.selection_rules import ROUTERS, RULES, Evidence
from experiments.selection_training import TRAININGS, Negatives, evidence, learn
from tests.conftest import TinyNet, blobs
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.features import FeatureData
from tosca_avalanche.modules.tosca_net import ROUTED


def by_hand():
    """Two tasks of two classes, two images; every number small enough to follow."""
    logits = torch.tensor(
        [
            [[2.0, 0.0, 1.0, 1.0], [0.5, 0.0, 4.0, 0.0]],
            [[0.0, 0.0, 3.0, 2.9], [0.0, 0.0, 1.0, 0.0]],
        ]
    )
    router = torch.tensor([[0.0, 10.0, -10.0, -10.0], [0.0, 0.0, 0.0, 20.0]])
    return Evidence(
        logits=logits,
        redrawn=logits.flip(1),
        sigma=2.0,
        task_of=torch.tensor([0, 0, 1, 1]),
        centre=torch.tensor([0.9, 0.5]),
        spread=torch.tensor([0.1, 0.5]),
        slda=router,
        gaussians=router,
        ridge=2 * router,
    )


@pytest.mark.parametrize(
    ("rule", "task"),
    [
        ("entropy", [1, 0]),  # two likely classes of four, and one of four
        ("entropy, rows re-expressed", [0, 1]),
        ("own entropy", [0, 1]),  # gaps of 2 and 0.1; of 0.5 and 1
        ("energy", [1, 1]),
        ("max cosine", [1, 1]),
        ("margin", [0, 1]),
        # cosines 1 and 1.5: (1 - .9) / .1 and (1.5 - .5) / .5; then (.25 - .9) / .1 and 0
        ("standardised cosine", [1, 1]),
        ("task density", [0, 1]),
        ("SLDA alone", [0, 1]),
        ("gaussian-ridge", [0, 1]),
        ("Gaussians + ridge pick the task", [0, 1]),
        ("mixture of the best 3 modules", [0, 1]),
    ],
)
def test_which_module_each_rule_picks(rule, task):
    scores, chosen = RULES[rule](by_hand())
    assert chosen.tolist() == task
    assert scores.shape == (2, 4)


def test_products_and_priors_answer_differently():
    e = by_hand()
    # the module prefers class 0 by 2, the router class 1 by 30
    assert RULES["gaussian-ridge"](e)[0].argmax(dim=1).tolist() == [1, 3]
    assert RULES["Gaussians + ridge pick the task"](e)[0].argmax(dim=1).tolist() == [0, 2]
    assert RULES["task density"](e)[0].argmax(dim=1).tolist() == [0, 2]
    assert RULES["ridge alone"](e)[0].argmax(dim=1).tolist() == [1, 3]


@pytest.fixture(scope="module")
def tasks():
    backbone = load_backbone(TinyNet())
    out = []
    for labels in ([0, 1, 2], [3, 4, 5]):
        images, y = blobs(6, 20, 3).tensors
        keep = torch.isin(y, torch.tensor(labels))
        with torch.no_grad():
            out.append(FeatureData(backbone(images[keep]), y[keep]))
    return backbone, out


@pytest.mark.parametrize("name", ["+ trained rows (preset)", "+ Gaussian negatives"])
def test_the_winner_is_what_the_product_answers(tasks, name):
    backbone, data = tasks
    net = learn(TRAININGS[name], backbone, data, seed=1).eval()
    z = torch.cat([d.z for d in data])
    with torch.no_grad():
        e = evidence(net, data, z, seed=1)
        outputs = net.classify(z)
        scores, task = RULES["gaussian-ridge"](e)
    assert torch.allclose(outputs[:, net.classes], scores, atol=1e-3)
    assert torch.equal(task, net.last_modules)


def test_the_preset_is_that_of_the_strategy():
    import inspect

    from tosca_avalanche.strategies import RoutedTOSCAStrategy

    keywords = inspect.signature(RoutedTOSCAStrategy.__init__).parameters
    preset = TRAININGS["+ trained rows (preset)"].settings
    own = {k: p.default for k, p in keywords.items() if p.default is not inspect.Parameter.empty}
    assert own == {**preset, "selection": "gaussian-ridge"} == ROUTED


def test_negatives_make_modules_unsure_of_earlier_classes(tasks):
    backbone, data = tasks
    entropies = []
    for name in ("+ trained rows (preset)", "+ Gaussian negatives"):
        net = learn(TRAININGS[name], backbone, data, seed=1)
        with torch.no_grad():
            foreign = net.head(net.bank.luca[1](data[0].z))[:, 3:].log_softmax(dim=1)
        entropies.append(float(-(foreign.exp() * foreign).sum(dim=1).mean()))
    assert entropies[1] > entropies[0] + 0.05


def test_gaussian_negatives_have_the_statistics_of_earlier_classes(tasks):
    _, data = tasks
    negatives = Negatives("gaussian", data[0].z.shape[1], 0)
    negatives.start(data[0])
    assert negatives.draw(5) is None
    negatives.stop()
    negatives.start(data[1])
    drawn = negatives.draw(20_000)
    assert torch.allclose(drawn.mean(dim=0), data[0].z.mean(dim=0), atol=0.1)


def test_mixup_negatives_lie_between_classes():
    negatives = Negatives("mixup", 2, 0)
    negatives.start(FeatureData(torch.tensor([[0.0, 0.0], [2.0, 4.0]]), torch.tensor([0, 1])))
    assert torch.equal(negatives.draw(3), torch.tensor([[1.0, 2.0]] * 3))


def test_a_tenth_of_each_class_is_held_out():
    y = torch.tensor([0] * 30 + [1] * 5 + [2])
    data = FeatureData(torch.arange(36.0).unsqueeze(1), y)
    rest, out = selection_study.held_out(data, 1)
    assert out.y.tolist() == [0, 0, 0, 1] and len(rest.y) == 32
    assert sorted(rest.z.flatten().tolist() + out.z.flatten().tolist()) == list(range(36))
    other = selection_study.held_out(data, 2)[1]
    assert not torch.equal(out.z, other.z)


def test_judging_counts_by_hand():
    e = by_hand()
    rows = selection_study.judged(e, torch.tensor([7, 9]), [3, 7, 8, 9], ["gaussian-ridge"])
    assert rows[0]["acc"] == 1 and rows[0]["selection_acc"] == 1 and rows[0]["n"] == 2
    rows = selection_study.judged(e, torch.tensor([3, 9]), [3, 7, 8, 9], ["ridge alone"])
    assert rows[0]["acc"] == 0.5 and rows[0]["selection_acc"] == 1


def fake_runs():
    rows = []
    for seed in (1, 2):
        for training in TRAININGS:
            for i, rule in enumerate(RULES):
                if rule in ROUTERS and training != "authors":
                    continue
                rows.append(
                    ["test", "s", seed, training, rule, i / 100 + seed / 10, 0.5, 0.1, 1.0, 10]
                )
    columns = ["part", "stream", "seed", "training", "rule", "acc", "selection_acc", "ece"]
    return pd.DataFrame(rows, columns=[*columns, "rule_us_per_image", "n"])


def test_the_report_pairs_seeds_and_means_them(tmp_path):
    runs = fake_runs()
    write_report(runs, tmp_path)
    text = (tmp_path / "summary.md").read_text()
    place = list(RULES).index("gaussian-ridge")
    mean = 100 * (place / 100 + 0.15)
    assert f"| gaussian-ridge | {mean:.1f} ± {100 * np.std([0.1, 0.2], ddof=1):.1f} |" in text
    difference = place - list(RULES).index("SLDA alone")
    assert f"| gaussian-ridge - SLDA alone | +{difference:.1f} ± 0.0 |" in text
    assert len(paired(runs, "test", "gaussian-ridge", "SLDA alone")) == 2
    assert (tmp_path / "gain.png").stat().st_size > 10_000


def test_streams_without_data_are_skipped_and_runs_are_not_repeated(
    tmp_path, tasks, monkeypatch, capsys
):
    backbone, data = tasks
    monkeypatch.setattr(selection_study, "load_backbone", lambda name: backbone)
    monkeypatch.setattr(selection_study, "VALIDATION_SEEDS", (1,))
    monkeypatch.setattr(selection_study, "TEST_SEEDS", (2,))

    def features(backbone, cache, stream, root, seed):
        return (data, data) if stream == "glyphs 50x10" else None

    monkeypatch.setattr(selection_study, "features", features)
    options = argparse.Namespace(data=tmp_path, out=tmp_path, streams=["aid30 6x5", "glyphs 50x10"])
    first = selection_study.study(options)
    assert "no aid30.tar" in capsys.readouterr().out
    assert set(first["stream"]) == {"glyphs 50x10"} and set(first["part"]) == {"validation", "test"}
    monkeypatch.setattr(selection_study, "learn", None)  # would fail if it were called
    again = selection_study.study(options)
    pd.testing.assert_frame_equal(first, again, check_dtype=False)
