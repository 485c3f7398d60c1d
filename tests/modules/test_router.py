"""The router against the equations, written out class by class."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from tosca_avalanche.modules.router import ClassGaussians, Router

DIM = 6


def data(classes=4, n=30, seed=0):
    g = torch.Generator().manual_seed(seed)
    mixing = torch.randn(classes, DIM, DIM, generator=g)
    means = 2 * torch.randn(classes, DIM, generator=g)
    y = torch.arange(classes).repeat_interleave(n)
    noise = torch.randn(classes * n, 1, DIM, generator=g)
    return means[y] + (noise @ mixing[y]).squeeze(1), y


def filled(cls, z, y, **settings):
    made = cls(z.shape[1], **settings)
    made.grow(int(y.max()) + 1)
    made.update(z, y)
    return made


def literal_covariances(z, y):
    """Return Sigma_c from the equation; the shared part shrunk as Chen et al. write (eq. 23)."""
    z = z.double().numpy()
    centred = np.concatenate([z[y == c] - z[y == c].mean(0) for c in y.unique()])
    shared, n, d = centred.T @ centred / len(centred), len(centred), z.shape[1]
    square, trace = np.trace(shared @ shared), np.trace(shared)
    rho = ((1 - 2 / d) * square + trace**2) / ((n + 1 - 2 / d) * (square - trace**2 / d))
    shared = (1 - rho) * shared + rho * trace / d * np.eye(d)
    out = []
    for c in y.unique():
        own = z[y == c]
        weight = len(own) / (len(own) + z.shape[1])
        out.append((1 - weight) * shared + weight * np.cov(own.T, bias=True))
    return torch.tensor(np.stack(out))


def test_covariances_are_those_of_the_equation():
    z, y = data()
    made = filled(ClassGaussians, z, y).covariances()
    assert torch.allclose(made, literal_covariances(z, y), atol=1e-4)


def test_log_likelihoods_are_those_of_the_normal_distribution():
    z, y = data()
    covariances = literal_covariances(z, y)
    expected = torch.stack(
        [
            MultivariateNormal(z[y == c].double().mean(0), covariances[c]).log_prob(z.double())
            for c in range(4)
        ],
        dim=1,
    )
    made = filled(ClassGaussians, z, y).log_likelihood(z)
    assert torch.allclose(made.double() - DIM / 2 * math.log(2 * math.pi), expected, atol=1e-3)


def test_covariances_tell_classes_of_one_mean_apart():
    g = torch.Generator().manual_seed(1)
    z = torch.randn(400, DIM, generator=g)
    y = torch.arange(2).repeat_interleave(200)
    z[y == 1] *= 4
    made = filled(ClassGaussians, z, y).log_likelihood(z)
    assert (made.argmax(dim=1) == y).float().mean() > 0.95


def test_the_ridge_is_least_squares_on_random_features():
    z, y = data()
    router = filled(Router, z, y, projection=40, ridge_weight=7.0, seed=3)
    h = torch.relu(z.double() @ router.ridge.W.double())
    strength = 0.01 * float((h.T @ h).diagonal().mean())
    one_hot = torch.eye(4, dtype=torch.float64)[y]
    # the normal equations as stacked rows of an ordinary least squares problem
    rows = torch.cat([h, math.sqrt(strength) * torch.eye(40, dtype=torch.float64)])
    targets = torch.cat([one_hot, torch.zeros(40, 4, dtype=torch.float64)])
    solution = torch.linalg.lstsq(rows, targets).solution
    expected = router.gaussians.log_likelihood(z).double() + 7 * h @ solution
    assert torch.allclose(router(z).double(), expected, atol=1e-3)


@pytest.mark.parametrize("pieces", [1, 3, 40])
def test_order_and_pieces_of_the_data_change_nothing(pieces):
    z, y = data()
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(pieces))
    other = Router(DIM, 40)
    other.grow(4)
    for part in order.chunk(pieces):
        other.update(z[part], y[part])
    assert torch.allclose(other(z), filled(Router, z, y, projection=40)(z), atol=1e-2)


def test_classes_may_come_later_and_again():
    z, y = data()
    late = Router(DIM, 40)
    late.grow(2)
    late.update(z[y < 2], y[y < 2])
    before = late(z)
    late.grow(2)
    waiting = late(z)
    assert waiting.shape == (len(z), 4) and waiting[:, 2:].max() < waiting[:, :2].min() - 9e3
    late.update(z[y >= 2][::2], y[y >= 2][::2])
    late.update(z[y >= 2][1::2], y[y >= 2][1::2])
    assert torch.allclose(late(z), filled(Router, z, y, projection=40)(z), atol=1e-2)
    assert before.shape == (len(z), 2)


def test_a_class_that_comes_later_copies_and_changes_none():
    z, y = data()
    made = filled(ClassGaussians, z[y < 3], y[y < 3])
    places = [made.outer(c).data_ptr() for c in range(3)]
    before = [made.outer(c).clone() for c in range(3)]
    made.grow(1)
    made.update(z[y == 3], y[y == 3])
    assert [made.outer(c).data_ptr() for c in range(3)] == places
    assert all(torch.equal(made.outer(c), before[c]) for c in range(3))
    assert torch.allclose(made.outer(3), z[y == 3].T @ z[y == 3], rtol=1e-5)
    assert made.outer(3).untyped_storage().nbytes() == 4 * DIM * DIM  # a pickle holds no more


def test_without_projection_only_the_gaussians_speak():
    z, y = data()
    router = filled(Router, z, y, projection=0)
    assert torch.equal(router(z), router.gaussians.log_likelihood(z))


def test_features_that_never_vary_give_finite_scores():
    z, y = torch.ones(6, DIM), torch.tensor([0, 0, 0, 1, 1, 1])
    assert torch.isfinite(filled(Router, z, y, projection=10)(z)).all()


def test_a_single_image_a_class_is_enough():
    z, y = data(n=1)
    assert (filled(Router, z, y, projection=10)(z).argmax(dim=1) == y).all()


@pytest.mark.parametrize("settings", [{"projection": -1}, {"ridge_weight": float("nan")}])
def test_bad_settings_are_named(settings):
    name = next(iter(settings))
    with pytest.raises(ValueError, match=name):
        Router(DIM, **settings)
