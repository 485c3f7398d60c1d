"""MOS: merge, separation, refinement and answer against loops written from the text."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.conftest import TinyNet
from tests.strategies.methods import TinyViT
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import BackboneError
from tosca_avalanche.modules import AdaptedViT, MOSNet
from tosca_avalanche.modules.mos_net import refine


def net_of(tasks, **settings):
    net = MOSNet(load_backbone(TinyViT()), width=4, **{"align_epochs": 0, **settings})
    generator = torch.Generator().manual_seed(0)
    images = {}
    with torch.no_grad():
        for labels in tasks:
            net.add_task(labels)
            for p in net.sets[-1].parameters():
                p.add_(torch.randn(p.shape, generator=generator))
            net.finish_adapting()
            for label in labels:
                images[label] = torch.randn(5, 3, 4, 4, generator=generator)
                z = torch.cat([e(images[label]) for e in net.statistics_from], dim=1)
                net.learn(z, torch.full((5,), label))
            net.end_task()
    return net.eval(), images


def test_a_set_starts_from_the_one_before():
    net, _ = net_of([[0, 1]])
    net.add_task([2])
    first, second = (list(s.parameters()) for s in net.sets)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(p.requires_grad for p in second) and not any(p.requires_grad for p in first)
    assert net.sets[0][0]._seed != net.sets[1][0]._seed, "dropout draws anew"


def test_merge_by_hand():
    """w <- 0.9 w + 0.1 mean of the earlier sets; these stay."""
    net, _ = net_of([[0], [1], [2]])
    before = [[p.clone() for p in s.parameters()] for s in net.sets]
    net.merge()
    for k, p in enumerate(net.sets[2].parameters()):
        expected = 0.9 * before[2][k] + 0.1 * (before[0][k] + before[1][k]) / 2
        torch.testing.assert_close(p, expected)
    for t in (0, 1):
        assert all(
            torch.equal(a, b) for a, b in zip(before[t], net.sets[t].parameters(), strict=True)
        )
    for single in (net_of([[0]])[0], net_of([[0], [1]], merge="none")[0]):
        before_single = [p.clone() for p in single.sets[-1].parameters()]
        single.merge()
        now = single.sets[-1].parameters()
        assert all(torch.equal(a, b) for a, b in zip(before_single, now, strict=True))


def test_separation_loss_written_out():
    net, _ = net_of([[0, 1], [2]])
    net.add_task([3])
    net.eval()  # no dropout
    x = torch.randn(3, 3, 4, 4, generator=torch.Generator().manual_seed(4))
    net.task_outputs(x)
    batch = AdaptedViT(TinyViT().eval(), net.sets[-1])(x)
    rows = [*net.means[:3], *batch]
    total = 0.0
    for i, row in enumerate(rows):
        scores = [float(row.double() @ other.double()) / 0.8 for other in rows]
        top = max(scores)
        total -= scores[i] - top - math.log(sum(math.exp(s - top) for s in scores))
    assert net.separation_loss().item() == pytest.approx(0.1 * total / len(rows), rel=1e-4)


def test_training_outputs_are_those_of_the_tasks_classes():
    net, _ = net_of([[0, 1]])
    net.add_task([2, 3])
    net.train()
    out = net.task_outputs(torch.randn(2, 3, 4, 4))
    assert out.shape == (2, 4) and (out[:, :2] < out[:, 2:].min() - 1e3).all()
    out[:, 2:].sum().backward()
    assert not net.head.weight.grad[:2].any() and net.head.weight.grad[2:].any()
    assert net.sets[1][0].up_weight.grad.any() and net.sets[0][0].up_weight.grad is None
    amid = net.eval().task_outputs(torch.randn(2, 3, 4, 4))
    assert amid.max() - amid.min() < 1e3, "an evaluation amid training is over all classes"


def test_statistics_are_each_sets_own():
    net, images = net_of([[0, 3], [1]])
    first, second = (AdaptedViT(TinyViT().eval(), s) for s in net.sets)
    with torch.no_grad():
        for row, (label, own) in enumerate([(0, first), (3, first), (1, second)]):
            z = own(images[label]).double()
            anchor = first(images[label]).double().mean(0)
            torch.testing.assert_close(net.anchors[row], anchor.float())
            torch.testing.assert_close(net.means[row], z.mean(0).float())
            cov = torch.cov(z.T) + 1e-4 * torch.eye(32)
            torch.testing.assert_close(net.covariances[row], cov.float(), atol=1e-5, rtol=1e-4)


def refined(features, cosines, head, row_tasks):
    """One image at a time, until it names itself, or after four evaluations."""
    logits_of, sets = [], []
    for f, cos in zip(features, cosines, strict=True):
        s = row_tasks[int(cos.argmax())]
        for _ in range(4):
            logits = head(f[s])
            named, evaluated = row_tasks[int(logits.argmax())], s
            if named == s:
                break
            s = named
        logits_of.append(logits)
        sets.append(evaluated)
    return torch.stack(logits_of), sets


def test_refinement_is_the_loop_over_images():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(200, 3, 6, generator=generator)
    cosines = torch.randn(200, 7, generator=generator)
    head = torch.nn.Linear(6, 7)
    with torch.no_grad():
        head.weight.copy_(torch.randn(7, 6, generator=generator))
        tasks = torch.tensor([0, 0, 1, 1, 1, 2, 2])
        logits, sets = refine(features, cosines, head, tasks)
        expected, own = refined(features, cosines, head, tasks.tolist())
    torch.testing.assert_close(logits, expected)
    assert sets.tolist() == own
    first = tasks[cosines.argmax(1)]
    assert 0 < (sets == first).sum() < 200, "some images move, some stay"


@torch.no_grad()
def test_the_answer_written_out():
    """softmax(last logits) + softmax(T cosines), up to the log and a factor of two."""
    net, images = net_of([[0, 3], [1, 4], [2]])
    x = torch.randn(30, 3, 4, 4, generator=torch.Generator().manual_seed(3))
    out = net(x).softmax(dim=1)
    vits = [AdaptedViT(TinyViT().eval(), s) for s in net.sets]
    order, tasks = [0, 3, 1, 4, 2], [0, 0, 1, 1, 2]
    prototypes = torch.stack([vits[0](images[c]).mean(0) for c in order])
    for n, image in enumerate(x):
        f = [v(image[None])[0] for v in vits]
        cosines = torch.stack([F.cosine_similarity(f[0], p, dim=0) for p in prototypes])
        logits, sets = refined([torch.stack(f)], cosines[None], net.head, tasks)
        expected = (logits[0].softmax(0) + (3 * cosines).softmax(0)) / 2
        torch.testing.assert_close(out[n, order], expected, atol=1e-5, rtol=1e-4)
        assert int(net.last_modules[n]) == sets[0]


def test_bad_settings_and_backbones_are_named():
    backbone = load_backbone(TinyViT())
    with pytest.raises(ValueError, match="merge='block'"):
        MOSNet(backbone, merge="block")
    with pytest.raises(ValueError, match="covariance='tied'"):
        MOSNet(backbone, covariance="tied")
    with pytest.raises(BackboneError, match="TinyNet"):
        MOSNet(load_backbone(TinyNet()))
