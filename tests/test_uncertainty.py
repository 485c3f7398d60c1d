"""Uncertainty by hand, the temperature against a grid, and answers that say unknown."""

import math

import pytest
import torch
import torch.nn.functional as F

from tosca_avalanche.modules import PrototypeNet, ToscaNet
from tosca_avalanche.uncertainty import (
    UNKNOWN,
    answers,
    fit_temperature,
    normalised_entropy,
    seen_logits,
)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_normalised_entropy_by_hand():
    # p = (1/2, 1/4, 1/4): H = 1.5 log 2
    logits = torch.tensor([[2.0, 1.0, 1.0]]).exp2().log2() * math.log(2)
    assert normalised_entropy(logits).item() == pytest.approx(1.5 * math.log(2) / math.log(3))
    assert normalised_entropy(torch.tensor([[1e4, 0.0]])).item() == 0
    assert normalised_entropy(torch.zeros(2, 100)).tolist() == pytest.approx([1, 1])
    assert normalised_entropy(torch.zeros(4, 1)).tolist() == [0] * 4  # one class: no doubt
    assert normalised_entropy(noise(50, 3, seed=1) * 1e6).ge(0).all()


def test_a_higher_temperature_is_less_certain():
    logits = noise(20, 6)
    values = torch.stack([normalised_entropy(logits, t) for t in (0.5, 1.0, 2.0, 8.0)])
    assert (values.diff(dim=0) > 0).all()
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="temperature="):
            normalised_entropy(logits, bad)


@pytest.mark.parametrize("true", [0.3, 1.0, 4.0])
def test_the_temperature_is_the_minimum_of_a_grid(true):
    """Labels drawn from softmax(logits / true): the fit finds about that, and nothing better is."""
    logits = 3 * noise(4000, 5)
    drawn = torch.multinomial(
        torch.softmax(logits / true, 1), 1, generator=torch.Generator().manual_seed(1)
    ).squeeze(1)
    found = fit_temperature(logits, drawn)
    assert found == pytest.approx(true, rel=0.1)
    double = logits.double()
    best = F.cross_entropy(double / found, drawn)
    for factor in (0.5, 0.9, 0.999, 1.001, 1.1, 2.0):
        assert best <= F.cross_entropy(double / (found * factor), drawn)


def test_a_temperature_without_a_minimum_stops_at_the_ends():
    logits = noise(30, 4)
    assert fit_temperature(logits, logits.argmax(1)) == pytest.approx(1e-4)  # always right
    assert fit_temperature(logits, logits.argmin(1)) == pytest.approx(1e4)  # always wrong
    assert fit_temperature(torch.zeros(3, 2), torch.zeros(3, dtype=torch.long)) > 0


@pytest.mark.parametrize(
    ("logits", "positions", "message"),
    [
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), "at least one image"),
        (torch.zeros(2, 3), torch.tensor([0]), r"positions \(1,\)"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), r"0 \.\. 2"),
        (torch.zeros(2, 3), torch.tensor([-1, 0]), r"0 \.\. 2"),
    ],
)
def test_bad_held_out_images_are_named(logits, positions, message):
    with pytest.raises(ValueError, match=message):
        fit_temperature(logits, positions)


@pytest.fixture
def net(backbone):
    net = ToscaNet(backbone, scale_init=20.0)
    net.add_task([7, 3])
    net.add_task([5])
    net.bank.freeze()
    return net.eval()


@torch.no_grad()
def test_answers_above_the_threshold_are_unknown(net):
    outputs = net.classify(noise(60, 32))
    labels, uncertain = answers(net, outputs)
    assert torch.equal(labels, outputs.argmax(1))
    # columns of labels never seen count for nothing: three classes, log 3
    p = torch.softmax(outputs[:, [3, 7, 5]], 1)
    torch.testing.assert_close(uncertain, -(p * p.log()).sum(1) / math.log(3))
    assert seen_logits(net, outputs).shape == (60, 3)
    limit = uncertain.sort().values[30].item()
    known, same = answers(net, outputs, abstain=limit)
    assert torch.equal(same, uncertain)
    assert (known == UNKNOWN).sum() == 29 and torch.equal(known == UNKNOWN, uncertain > limit)
    assert torch.equal(known[known != UNKNOWN], labels[known != UNKNOWN])
    one, _ = answers(net, outputs[4:5], abstain=limit)
    assert one[0] == known[4]  # the same alone
    assert (answers(net, outputs, abstain=1.0)[0] >= 0).all()
    hot = answers(net, outputs, abstain=limit, temperature=50.0)[0]
    assert (hot == UNKNOWN).all()


@torch.no_grad()
def test_what_is_refused(net, backbone):
    outputs = net.classify(noise(3, 32))
    for bad in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="abstain="):
            answers(net, outputs, abstain=bad)
    with pytest.raises(ValueError, match="no class"):
        answers(ToscaNet(backbone), outputs)
    cosines = PrototypeNet(backbone)
    cosines.add_task([0, 1])
    cosines.learn(noise(6, 32), torch.tensor([0, 1] * 3))
    found = cosines.classify(noise(3, 32))
    with pytest.raises(ValueError, match="PrototypeNet"):
        answers(cosines, found, abstain=0.5)
    assert torch.equal(answers(cosines, found)[0], found.argmax(1))
