"""Second-order statistics of the frozen features that tell which task an image belongs to."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tosca_avalanche.errors import TrainingError
from tosca_avalanche.modules.gaussian import shrunk
from tosca_avalanche.modules.projection import RidgeProjection
from tosca_avalanche.modules.prototypes import ClassSums

# of the mean diagonal of the Gram matrix; chosen on held-out training images, see docs/selection.md
RELATIVE_RIDGE = 0.01


class ClassGaussians(ClassSums):
    """A Gaussian per class, its covariance drawn towards the one that all classes share.

    From sums alone, n_c, sum x and sum x x^T of each class::

        S_c     = sum x x^T / n_c - mu_c mu_c^T
        S       = sum_c n_c S_c / N, shrunk towards its mean variance (OAS)
        Sigma_c = (1 - w_c) S + w_c S_c,      w_c = n_c / (n_c + d)

    so that a class of d images counts as much as all others together: regularised
    discriminant analysis (Friedman, JASA 1989) with a strength that nobody has to tune. The
    sums only add up: order of images and tasks changes nothing but rounding, a class that
    comes again is updated, and no image is kept. The products stand in single precision,
    4 d^2 bytes a class, and each class's in a buffer of its own: one more class copies none.

    :param dim: feature width d.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self._solved: tuple[Tensor, Tensor, Tensor] | None = None

    def grow(self, n: int) -> None:
        """Make room for n more classes."""
        known, dim = self.sums.shape
        super().grow(n)
        for c in range(known, known + n):
            empty = self.sums.new_zeros(dim, dim, dtype=torch.float32)
            self.register_buffer(f"outer_{c}", empty)
        self._solved = None

    def outer(self, c: int) -> Tensor:
        """Return the sum of x x^T over the images of class c [d, d]."""
        return self.get_buffer(f"outer_{c}")

    @torch.no_grad()
    def update(self, z: Tensor, index: Tensor) -> None:
        """Add features [B, d] of the classes at positions ``index`` [B]."""
        super().update(z, index)
        for c in index.unique().tolist():
            outer = self.outer(c)
            own = z[index == c].to(outer)
            outer.addmm_(own.T, own)
        self._solved = None

    @torch.no_grad()
    def covariances(self) -> Tensor:
        """Return Sigma_c of every class [C, d, d] in double precision; S before any image."""
        counts, means = self.counts.double(), self.means
        outers = torch.stack([self.outer(c).double() for c in range(len(counts))])
        raw = outers - counts.view(-1, 1, 1) * means.unsqueeze(2) * means.unsqueeze(1)
        total = float(counts.sum())
        shared = shrunk(raw.sum(dim=0) / max(1.0, total), total, "oas")
        # features that never vary have no spread: any positive floor keeps the factors finite
        floor = torch.finfo(torch.float32).eps * max(1.0, float(means.abs().max()) ** 2)
        shared = shared + floor * torch.eye(len(shared), dtype=shared.dtype, device=shared.device)
        own = (counts / (counts + len(shared))).view(-1, 1, 1)
        return (1 - own) * shared + own * (raw / counts.clamp_min(1).view(-1, 1, 1))

    def _factors(self) -> Tensor:
        """Return Cholesky factors [C, d, d]; rounding gets as much more variance as it takes."""
        covariances = self.covariances()
        diagonals = covariances.diagonal(dim1=1, dim2=2)
        floor = torch.finfo(torch.float32).eps * diagonals.mean(dim=1).clamp_min(1e-12)
        for _ in range(20):
            factors, failed = torch.linalg.cholesky_ex(covariances)
            if not failed.any():
                return factors
            diagonals += torch.where(failed > 0, floor, 0.0).unsqueeze(1)
            floor = 10 * floor
        raise TrainingError("the covariances of the features are not finite; look at the images")

    @torch.no_grad()
    def solve(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return whitening matrices [C, d, d], whitened means [C, d] and offsets [C]."""
        if self._solved is None:
            factors = self._factors()
            eye = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
            white = torch.linalg.solve_triangular(factors, eye, upper=False)
            offsets = -factors.diagonal(dim1=1, dim2=2).log().sum(dim=1)
            means = torch.einsum("cij,cj->ci", white, self.means)
            self._solved = white.float(), means.float(), offsets.float()
        return self._solved

    @torch.no_grad()
    def log_likelihood(self, z: Tensor) -> Tensor:
        """Return log N(z; mu_c, Sigma_c) + d/2 log 2 pi, [B, C], for features z [B, d]."""
        white, means, offsets = self.solve()
        deviations = (z @ white.flatten(0, 1).T).unflatten(1, means.shape) - means
        return offsets - 0.5 * deviations.square().sum(dim=2)


class Router(nn.Module):
    """Scores every class on the raw features: class Gaussians plus ridge regression.

    score_c(z) = log N(z; mu_c, Sigma_c) + ridge_weight * r_c(z), where r_c is the ridge
    regression from random features ReLU(z W) to one-hot labels, with ridge strength 0.01 of
    the Gram matrix's mean diagonal. Both come from sums that only add up.

    :param dim: feature width d.
    :param projection: M, the number of random features; 0 leaves the ridge out.
    :param ridge_weight: weight of the regression.
    :param seed: of the random features.
    """

    def __init__(
        self, dim: int, projection: int = 2000, ridge_weight: float = 30.0, seed: int = 0
    ) -> None:
        super().__init__()
        if projection < 0 or not math.isfinite(ridge_weight) or ridge_weight < 0:
            raise ValueError(
                f"Router: projection={projection} and ridge_weight={ridge_weight} must not be "
                f"negative"
            )
        self.ridge_weight = ridge_weight
        self.gaussians = ClassGaussians(dim)
        self.ridge = RidgeProjection(dim, projection, seed) if projection else None
        self._weights: Tensor | None = None

    def grow(self, n: int) -> None:
        """Make room for n more classes."""
        self.gaussians.grow(n)
        if self.ridge is not None:
            self.ridge.grow(n)
        self._weights = None

    @torch.no_grad()
    def update(self, z: Tensor, index: Tensor) -> None:
        """Add features [B, d] of the classes at positions ``index`` [B]."""
        self.gaussians.update(z, index)
        if self.ridge is not None:
            self.ridge.update(z, index)
        self._weights = None

    @torch.no_grad()
    def regression(self, z: Tensor) -> Tensor:
        """Return ridge_weight * r_c(z) [B, C] for features z [B, d]; 0 without a ridge."""
        if self.ridge is None or not self.ridge_weight:
            return z.new_zeros(len(z), len(self.gaussians.counts))
        if self._weights is None:
            strength = RELATIVE_RIDGE * float(self.ridge.G.diagonal().mean())
            self._weights = self.ridge.solve(max(strength, RELATIVE_RIDGE))
        return self.ridge_weight * (self.ridge.project(z) @ self._weights)

    @torch.no_grad()
    def forward(self, z: Tensor) -> Tensor:
        """Return scores [B, C] for features z [B, d]; a class without images never wins."""
        scores = self.gaussians.log_likelihood(z) + self.regression(z)
        lowest = scores.min(dim=1, keepdim=True).values - 1e4
        return torch.where(self.gaussians.counts > 0, scores, lowest)
