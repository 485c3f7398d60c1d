"""Shared-covariance Gaussians against numpy and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.covariance import oas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from tosca_avalanche.modules import SharedGaussian, SLDANet
from tosca_avalanche.modules.gaussian import oas_shrinkage, shrunk


def sample(n=60, d=5, classes=3):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % classes
    x = torch.randn(n, d, generator=generator) @ torch.randn(d, d, generator=generator)
    return x + 2.0 * y.unsqueeze(1), y


def test_statistics_are_those_of_numpy():
    x, y = sample()
    statistics = SharedGaussian(5)
    statistics.grow(2)
    statistics.update(x[y < 2], y[y < 2])
    statistics.grow(1)
    for part in (y == 2).nonzero().squeeze(1).split(7):
        statistics.update(x[part], y[part])
    a, b = x.double().numpy(), y.numpy()
    means = np.stack([a[b == c].mean(0) for c in range(3)])
    centred = a - means[b]
    np.testing.assert_allclose(statistics.means.numpy(), means, rtol=1e-10)
    np.testing.assert_allclose(
        statistics.covariance.numpy(), centred.T @ centred / len(a), rtol=1e-8, atol=1e-10
    )


def test_a_shrunk_covariance_is_scikit_learns():
    x, _ = sample()
    a = x.double().numpy()
    a = a - a.mean(0)
    expected, rho = oas(a, assume_centered=True)
    covariance = torch.from_numpy(a.T @ a / len(a))
    np.testing.assert_allclose(shrunk(covariance, len(a), float(rho)).numpy(), expected, rtol=1e-9)


def test_oas_is_its_formula():
    s = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    # tr(S^2) = 4 + 0.25 + 0.25 + 1 = 5.5, tr(S)^2 = 9, d = 2, n = 10
    assert oas_shrinkage(s, 10) == pytest.approx((0 * 5.5 + 9) / ((10 + 1 - 1) * (5.5 - 4.5)))
    assert oas_shrinkage(torch.eye(3, dtype=torch.float64), 10) == 1


@pytest.mark.parametrize("shrinkage", [0.01, 0.3, 1.0])
def test_the_net_is_linear_discriminant_analysis(shrinkage, backbone):
    x, y = sample(n=90, d=32)
    net = SLDANet(backbone, shrinkage=shrinkage)
    net.add_task([0, 1, 2])
    net.learn(x, y)
    query = sample(n=200, d=32)[0] + torch.randn(
        200, 32, generator=torch.Generator().manual_seed(1)
    )
    own = net.classify(query).argmax(1)
    a, b = x.double().numpy(), y.numpy()
    means = np.stack([a[b == c].mean(0) for c in range(3)])
    s = (a - means[b]).T @ (a - means[b]) / len(a)
    s = (1 - shrinkage) * s + shrinkage * np.trace(s) / 32 * np.eye(32)
    inverse = np.linalg.inv(s)
    distance = [
        [(q - m) @ inverse @ (q - m) for m in means] for q in query.double().numpy()
    ]  # with equal priors: the nearest mean in the metric of the covariance
    assert own.tolist() == np.argmin(distance, axis=1).tolist()


def test_without_shrinkage_it_is_scikit_learns(backbone):
    x, y = sample(n=400, d=32)
    net = SLDANet(backbone, shrinkage=1e-9)
    net.add_task([0, 1, 2])
    net.learn(x, y)
    query = sample(n=300, d=32)[0] + 0.5
    lda = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3)
    lda.fit(x.double().numpy(), y.numpy())
    expected = lda.predict(query.double().numpy())
    assert len(set(expected)) == 3
    assert net.classify(query).argmax(1).tolist() == expected.tolist()


def test_constant_features_stay_finite(backbone):
    net = SLDANet(backbone)
    net.add_task([0, 1])
    net.learn(torch.ones(6, 32), torch.tensor([0, 0, 0, 1, 1, 1]))
    assert torch.isfinite(net.classify(torch.ones(2, 32))).all()


@pytest.mark.parametrize("bad", [0, -1, 1.5, "x"])
def test_bad_shrinkage_is_named(bad, backbone):
    with pytest.raises(ValueError, match="shrinkage"):
        SLDANet(backbone, shrinkage=bad)
