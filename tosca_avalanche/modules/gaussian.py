"""Class means and one shared covariance, from sums that only add up."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SharedGaussian(nn.Module):
    """Sufficient statistics of Gaussian classes with one covariance.

    Kept per class: the count n_c and the sum of its features; for all: the sum of outer
    products. All are double-precision sums, so the result does not depend on the order of
    images, batches or tasks, and no image is kept. From them::

        mu_c  = sum_c / n_c
        Sigma = (sum x x^T - sum_c n_c mu_c mu_c^T) / N        (within classes, N images)

    :param dim: feature width d.
    """

    sums: Tensor
    counts: Tensor
    outer: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(0, dim, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("outer", torch.zeros(dim, dim, dtype=torch.float64))

    def grow(self, n: int) -> None:
        """Make room for n more classes."""
        self.sums = torch.cat([self.sums, self.sums.new_zeros(n, self.sums.shape[1])])
        self.counts = torch.cat([self.counts, self.counts.new_zeros(n)])

    @torch.no_grad()
    def update(self, x: Tensor, index: Tensor) -> None:
        """Add features [B, d] of the classes at positions ``index`` [B]."""
        x = x.to(self.sums)
        self.sums.index_add_(0, index, x)
        self.counts.index_add_(0, index, torch.ones_like(x[:, 0]))
        self.outer += x.T @ x

    @property
    def means(self) -> Tensor:
        """Class means [C, d]; 0 for a class without images."""
        return self.sums / self.counts.clamp_min(1).unsqueeze(1)

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
