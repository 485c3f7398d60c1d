"""Random projection and ridge regression from additive statistics (RanPAC)."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from tosca_avalanche.seeding import generator

RIDGES = tuple(10.0**e for e in range(-8, 9))


class RidgeProjection(nn.Module):
    """h = ReLU(f W) with W [d, M] ~ N(0, 1) fixed; ridge weights from G = sum h h^T, Q = sum h y^T.

    Source: RanPAC (NeurIPS 2023). G and Q only add up: for a fixed ridge strength the
    weights do not depend on the order of images or tasks.

    :param dim: feature width d.
    :param size: M.
    :param seed: of W.
    """

    W: Tensor
    G: Tensor
    Q: Tensor

    def __init__(self, dim: int, size: int = 10_000, seed: int = 0) -> None:
        super().__init__()
        draws = generator(seed, "projection")
        self.register_buffer("W", torch.randn(dim, size, generator=draws))
        self.register_buffer("G", torch.zeros(size, size))
        self.register_buffer("Q", torch.zeros(size, 0))

    def grow(self, n: int) -> None:
        """Make room for n more classes."""
        self.Q = torch.cat([self.Q, self.Q.new_zeros(len(self.Q), n)], dim=1)

    def project(self, z: Tensor) -> Tensor:
        """Return h [B, M] for features z [B, d]."""
        return torch.relu(z @ self.W)

    @torch.no_grad()
    def update(self, z: Tensor, index: Tensor) -> None:
        """Add features [B, d] of the classes at positions ``index`` [B]."""
        h = self.project(z)
        self.G.addmm_(h.T, h)
        self.Q.index_add_(1, index, h.T)

    @torch.no_grad()
    def solve(self, ridge: float) -> Tensor:
        """Return (G + ridge I)^-1 Q [M, C], by one Cholesky factorisation in float64.

        Where the matrix is not positive definite in float64 the ridge is raised tenfold
        until it is, with a warning.
        """
        gram = self.G.double()
        diagonal = gram.diagonal()
        added = 0.0
        for step in range(20):
            wanted = ridge * 10**step
            diagonal += wanted - added
            added = wanted
            factor, failed = torch.linalg.cholesky_ex(gram)
            if not failed:
                if step:
                    warnings.warn(
                        f"ridge {ridge:g} left the Gram matrix singular; {wanted:g} was used",
                        stacklevel=2,
                    )
                return torch.cholesky_solve(self.Q.double(), factor).float()
        raise ValueError(f"the Gram matrix is not finite, ridge {ridge:g} can't help")


def choose_ridge(h: Tensor, y: Tensor, h_val: Tensor, y_val: Tensor) -> float:
    """Return the ridge of least mean squared error on held-out training features.

    In the dual and in float64, with one eigendecomposition for all candidates:
    K = H H^T = U S U^T, prediction(ridge) = H_val H^T U (S + ridge)^-1 U^T Y.

    :param h: [n, M] projected features, ``y`` [n, C] one-hot; likewise the held-out ones.
    :return: one of 10^-8 .. 10^8; the first on ties.
    """
    h, y, h_val, y_val = (v.double() for v in (h, y, h_val, y_val))
    values, vectors = torch.linalg.eigh(h @ h.T)
    left = h_val @ h.T @ vectors
    right = vectors.T @ y
    errors = []
    for ridge in RIDGES:
        prediction = (left / (values.clamp_min(0) + ridge)) @ right
        errors.append(float(((prediction - y_val) ** 2).mean()))
    return RIDGES[errors.index(min(errors))]
