"""Gaussian classes and the alignment of a head, against numpy and a loop."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tosca_avalanche.errors import TrainingError
from tosca_avalanche.modules import LinearHead
from tosca_avalanche.modules.alignment import align_head, gaussian_of, roots_of


@pytest.mark.parametrize("n", [1, 2, 9])
def test_mean_and_covariance(n):
    z = torch.randn(n, 4, generator=torch.Generator().manual_seed(n)).double()
    mean, full = gaussian_of(z)
    np.testing.assert_allclose(mean.numpy(), z.numpy().mean(0))
    expected = np.cov(z.numpy().T) if n > 1 else np.zeros((4, 4))
    np.testing.assert_allclose(full.numpy(), expected + 1e-4 * np.eye(4), atol=1e-12)
    np.testing.assert_allclose(gaussian_of(z, "diagonal")[1].numpy(), np.diag(full.numpy()))


def grown(n):
    head = LinearHead(3)
    head.grow(n, torch.Generator().manual_seed(1))
    return head


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_alignment_written_out(kind):
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(4, 3, generator=generator)
    roots = torch.randn(4, 3, 3, generator=generator)
    covariances = roots @ roots.mT + 0.1 * torch.eye(3)
    if kind == "diagonal":
        covariances = covariances.diagonal(dim1=1, dim2=2)
    head = grown(4)
    weight, bias = head.weight.detach().clone(), head.bias.detach().clone()
    align_head(
        head, means, covariances, targets=torch.arange(4), merge_rows=lambda q: q,
        epochs=3, samples=5, lr=0.1, draws=torch.Generator().manual_seed(7),
    )  # fmt: skip

    draws = torch.Generator().manual_seed(7)
    velocity = [torch.zeros(4, 3), torch.zeros(4)]
    for epoch in range(3):
        lr = 0.1 * (1 + np.cos(np.pi * epoch / 3)) / 2
        noise = torch.randn(4, 5, 3, generator=draws)
        samples = []
        for c in range(4):
            root = torch.linalg.cholesky(covariances[c]) if kind == "full" else (
                torch.diag(covariances[c].sqrt()))  # fmt: skip
            samples += [(means[c] + root @ e, c) for e in noise[c]]
        order = torch.randperm(20, generator=draws).tolist()
        for start in range(0, 20, 5):
            picked = [samples[i] for i in order[start : start + 5]]
            grads = [torch.zeros(4, 3), torch.zeros(4)]
            for z, c in picked:
                error = (weight @ z + bias).softmax(0) - F.one_hot(torch.tensor(c), 4)
                grads[0] += torch.outer(error, z) / 5
                grads[1] += error / 5
            for k, p in enumerate((weight, bias)):
                velocity[k] = 0.9 * velocity[k] + grads[k]
                p -= lr * velocity[k]
    torch.testing.assert_close(head.weight.detach(), weight, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(head.bias.detach(), bias, atol=1e-5, rtol=1e-4)


def test_alignment_separates_gaussians_and_leaves_the_global_state():
    means = 3 * torch.eye(3)
    covariances = 0.1 * torch.eye(3).repeat(3, 1, 1)
    head, state = grown(3), torch.get_rng_state()
    before = copy.deepcopy(head)
    align_head(
        head, means, covariances, targets=torch.arange(3), merge_rows=lambda q: q,
        epochs=20, samples=20, lr=0.05, draws=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert head(means).argmax(1).tolist() == [0, 1, 2]
    assert F.cross_entropy(head(means), torch.arange(3)) < 0.5 * F.cross_entropy(
        before(means), torch.arange(3)
    )
    assert torch.equal(state, torch.get_rng_state())


def test_a_covariance_without_a_root_gets_a_larger_ridge():
    """Rank one and large: single precision loses the ridge of 1e-4."""
    v = torch.tensor([1e4, 2e4, -3e4])
    singular = torch.outer(v, v) - 50 * torch.eye(3)
    roots = roots_of(torch.stack([singular, torch.eye(3)]))
    assert torch.isfinite(roots).all()
    torch.testing.assert_close(roots[1], torch.eye(3, dtype=torch.float64), msg="left alone")
    torch.testing.assert_close(roots[0] @ roots[0].T, singular.double(), atol=1e3, rtol=1e-3)
    with pytest.raises(TrainingError, match="row 1 is not finite"):
        roots_of(torch.stack([torch.eye(3), torch.full((3, 3), torch.nan)]))


def test_an_alignment_that_diverges_is_named():
    with pytest.raises(TrainingError, match=r"epoch \d+ of the head's alignment.*1e\+30"):
        align_head(
            grown(3), 1e10 * torch.eye(3), torch.eye(3).repeat(3, 1, 1), targets=torch.arange(3),
            merge_rows=lambda q: q, epochs=20, samples=5, lr=1e30,
            draws=torch.Generator().manual_seed(0),
        )  # fmt: skip
