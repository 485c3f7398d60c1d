"""RanPAC's regression against numpy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tosca_avalanche.modules import RanPACNet
from tosca_avalanche.modules.projection import RIDGES, RidgeProjection, choose_ridge


def data(n=80, d=6, classes=4):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % classes
    return torch.randn(n, d, generator=generator) + F.one_hot(y, d).float() * 2, y


def test_weights_are_ridge_regression():
    z, y = data()
    projection = RidgeProjection(6, 50, seed=3)
    projection.grow(4)
    for part in torch.arange(80).split(7):
        projection.update(z[part], y[part])
    h = np.maximum(z.double().numpy() @ projection.W.double().numpy(), 0)
    one_hot = np.eye(4)[y.numpy()]
    for ridge in (0.1, 10.0, 1e4):
        expected = np.linalg.solve(h.T @ h + ridge * np.eye(50), h.T @ one_hot)
        np.testing.assert_allclose(projection.solve(ridge).numpy(), expected, rtol=1e-3, atol=1e-4)


def test_a_singular_matrix_gets_a_larger_ridge_and_a_warning():
    projection = RidgeProjection(6, 200)
    projection.grow(1)
    projection.update(1e3 * data(n=3)[0], torch.zeros(3, dtype=torch.long))
    with pytest.warns(UserWarning, match="singular"):
        assert torch.isfinite(projection.solve(1e-8)).all()


def test_the_choice_is_the_least_error_written_out():
    """In the primal, with a solve per candidate, as the authors write it."""
    z, y = data()
    projection = RidgeProjection(6, 30)
    h, one_hot = projection.project(z), F.one_hot(y, 4)
    a, b = h[:64].double().numpy(), one_hot[:64].numpy().astype(float)
    errors = []
    for ridge in RIDGES:
        w = np.linalg.solve(a.T @ a + ridge * np.eye(30), a.T @ b)
        errors.append(np.mean((h[64:].double().numpy() @ w - one_hot[64:].numpy()) ** 2))
    assert choose_ridge(h[:64], one_hot[:64], h[64:], one_hot[64:]) == RIDGES[np.argmin(errors)]


@pytest.mark.parametrize("tasks", [[[0, 1, 2, 3]], [[3], [0, 2], [1]], [[1, 0], [2, 3]]])
def test_the_law_final_weights_do_not_depend_on_order_or_split(tasks, backbone):
    z, y = data(d=32)
    net = RanPACNet(backbone, petl=False, projection=60, ridge=10.0)
    for labels in tasks:
        net.add_task(labels)
        mine = torch.tensor([i for i in range(80) if int(y[i]) in labels])
        mine = mine[torch.randperm(len(mine), generator=torch.Generator().manual_seed(len(tasks)))]
        net.learn(z[mine], y[mine])
        net.end_task()
    whole = RanPACNet(backbone, petl=False, projection=60, ridge=10.0)
    whole.add_task([0, 1, 2, 3])
    whole.learn(z, y)
    torch.testing.assert_close(net.classify(z), whole.classify(z), atol=1e-4, rtol=1e-3)


def test_cosine_scores(backbone):
    z, y = data(d=32)
    nets = [
        RanPACNet(backbone, petl=False, projection=60, ridge=1.0, scores=s)
        for s in ("linear", "cosine")
    ]
    for net in nets:
        net.add_task([0, 1, 2, 3])
        net.learn(z, y)
    linear, cosine = (net.classify(z) for net in nets)
    weights = nets[0].statistics.solve(1.0)
    h = nets[0].statistics.project(z)
    norms = h.norm(dim=1, keepdim=True) * weights.norm(dim=0)
    torch.testing.assert_close(cosine, linear / norms, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_task_of_few_images_keeps_the_ridge_it_has(n, backbone):
    net = RanPACNet(backbone, petl=False, projection=20)
    net.add_task([0])
    net.learn(data(d=32)[0][:n], torch.zeros(n, dtype=torch.long))
    net.end_task()
    assert net.ridge == 1.0 if n == 1 else net.ridge in RIDGES
    assert torch.isfinite(net.classify(torch.randn(2, 32))).all()


@pytest.mark.parametrize("bad", [{"scores": "x"}, {"projection": 0}, {"ridge": 0.0}])
def test_bad_settings_are_named(bad, backbone):
    with pytest.raises(ValueError, match=next(iter(bad))):
        RanPACNet(backbone, petl=False, **bad)
