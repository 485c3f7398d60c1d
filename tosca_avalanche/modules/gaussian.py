"""Class means and one shared covariance, from sums that only add up."""

from __future__ import annotations

import torch
from torch import Tensor

from tosca_avalanche.modules.prototypes import ClassSums


class SharedGaussian(ClassSums):
    """Sufficient statistics of Gaussian classes with one covariance.

    Kept per class: the count n_c and the sum of its features; for all: the sum of outer
    products. All are double-precision sums, so the result does not depend on the order of
    images, batches or tasks, and no image is kept. From them::

        mu_c  = sum_c / n_c
        Sigma = (sum x x^T - sum_c n_c mu_c mu_c^T) / N        (within classes, N images)

    :param dim: feature width d.
    """

    outer: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.register_buffer("outer", torch.zeros(dim, dim, dtype=torch.float64))

    @torch.no_grad()
    def update(self, z: Tensor, index: Tensor) -> None:
        """Add features [B, d] of the classes at positions ``index`` [B]."""
        super().update(z, index)
        z = z.to(self.outer)
        self.outer += z.T @ z

    @property
    def covariance(self) -> Tensor:
        """The shared covariance [d, d]."""
        means = self.means
        within = self.outer - (self.counts.unsqueeze(1) * means).T @ means
        return within / self.counts.sum().clamp_min(1)


def oas_shrinkage(covariance: Tensor, n: float) -> float:
    """Return the shrinkage of Chen et al. (IEEE TSP 2010, eq. 23) for n samples.

    rho = ((1 - 2/d) tr(S^2) + tr(S)^2) / ((n + 1 - 2/d) (tr(S^2) - tr(S)^2 / d)), at most
    1: from the covariance and the count alone, so nothing has to be tuned.
    """
    d = len(covariance)
    square, trace = float((covariance**2).sum()), float(covariance.trace())
    below = (n + 1 - 2 / d) * (square - trace**2 / d)
    return 1.0 if below <= 0 else min(1.0, ((1 - 2 / d) * square + trace**2) / below)


def shrunk(covariance: Tensor, n: float, shrinkage: float | str) -> Tensor:
    """Return (1 - rho) S + rho tr(S)/d I, with rho given or "oas"."""
    rho = oas_shrinkage(covariance, n) if shrinkage == "oas" else float(shrinkage)
    d = len(covariance)
    eye = torch.eye(d, dtype=covariance.dtype, device=covariance.device)
    return (1 - rho) * covariance + rho * covariance.trace() / d * eye
