"""EASE's complement, reweighting and score against loops written from the equations."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.strategies.methods import TinyViT
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.modules import AdaptedViT, EASENet
from tosca_avalanche.modules.ease_net import complement, reweighting

SIZES = [2, 3, 1, 2]


def real_prototypes(dim=5):
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(n, t + 1, dim, generator=generator) for t, n in enumerate(SIZES)]


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))
    return dot / math.sqrt(sum(x * x for x in a.tolist()) * sum(y * y for y in b.tolist()))


def test_the_complement_written_out():
    """p[o, n] = sum over c of tasks n..t of softmax_c(cos(p[o, i], p[c, i])) p[c, n]."""
    real = real_prototypes()
    full = complement(real)
    assert full.shape == (sum(SIZES), len(SIZES), 5)
    row = 0
    for i, own in enumerate(real):
        for o in own:
            for n in range(len(SIZES)):
                if n <= i:
                    assert torch.equal(full[row, n], o[n]), "real prototypes stay as they are"
                    continue
                others = [c for task in range(n, len(SIZES)) for c in real[task]]
                weights = [math.exp(cosine(o[i], c[i])) for c in others]
                made = sum(w * c[n] for w, c in zip(weights, others, strict=True)) / sum(weights)
                torch.testing.assert_close(full[row, n], made)
            row += 1


def test_reweighting_by_hand():
    w = reweighting(torch.tensor([0, 0, 1, 2]), 3, 0.1)
    a = 0.05  # alpha / t, t = 2
    torch.testing.assert_close(w, torch.tensor([[1, a, a], [1, a, a], [a, 1, a], [a, a, 1]]))
    assert reweighting(torch.tensor([0]), 1, 0.1).tolist() == [[1.0]]


@torch.no_grad()
def fed_net():
    """Three tasks with different sets of adapters, prototypes from random images."""
    net = EASENet(load_backbone(TinyViT()), width=4)
    generator = torch.Generator().manual_seed(0)
    images = {}
    for labels in ([0, 3], [1, 4], [2]):
        net.add_task(labels)
        for p in net.sets[-1].parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
        net.finish_adapting()
        for label in labels:
            images[label] = torch.randn(4, 3, 4, 4, generator=generator)
            z = net.features(images[label])
            for part in (z[:1], z[1:]):
                net.learn(part, torch.full((len(part),), label))
        net.end_task()
    return net.eval(), images


@torch.no_grad()
def test_the_score_written_out():
    """Class of task i: sum_j w_ij cos(f_j, p_j), from images to outputs."""
    net, images = fed_net()
    vit = TinyViT().eval()
    features = [AdaptedViT(vit, s) for s in net.sets]
    order, task_of = [0, 3, 1, 4, 2], {0: 0, 3: 0, 1: 1, 4: 1, 2: 2}
    prototypes = {
        c: [f(images[c]).double().mean(0).float() for f in features[: task_of[c] + 1]]
        for c in order
    }
    for j in range(3):
        for c in order:
            if task_of[c] >= j:
                continue
            i = task_of[c]
            others = [o for o in order if task_of[o] >= j]
            weights = [math.exp(cosine(prototypes[c][i], prototypes[o][i])) for o in others]
            terms = [w * prototypes[o][j] for w, o in zip(weights, others, strict=True)]
            prototypes[c].append(sum(terms) / sum(weights))
    x = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(9))
    out = net(x)
    for n, image in enumerate(x):
        f = [m(image[None])[0] for m in features]
        for c in order:
            own = cosine(f[task_of[c]], prototypes[c][task_of[c]])
            others = [cosine(f[j], prototypes[c][j]) for j in range(3) if j != task_of[c]]
            assert out[n, c].item() == pytest.approx(own + 0.1 / 2 * sum(others), abs=1e-5)


@torch.no_grad()
def test_features_are_those_of_each_set_and_the_first_ones_stay():
    net, _ = fed_net()
    x = torch.randn(3, 3, 4, 4)
    z = net.features(x)
    assert z.shape == (3, 96) and net.passes_per_image == 3
    for i, adapters in enumerate(net.sets):
        expected = AdaptedViT(TinyViT().eval(), adapters)(x)
        torch.testing.assert_close(z[:, 32 * i : 32 * (i + 1)], expected)
    assert len({e.fingerprint for e in net.extractors}) == 3
    net.train()
    assert torch.equal(net.features(x), z), "frozen sets have no dropout"


def test_a_single_real_prototype_per_class_needs_no_complement():
    real = [F.normalize(torch.randn(3, 1, 4), dim=-1)]
    assert torch.equal(complement(real), real[0])
