"""SLDA as a plain torch net: a linear discriminant on the frozen features."""

from __future__ import annotations

import torch
from torch import Tensor

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.gaussian import SharedGaussian, shrunk
from tosca_avalanche.modules.incremental import IncrementalNet


class SLDANet(IncrementalNet):
    """Class means and one shared covariance; score w_c x + b_c with equal priors.

    w_c = Sigma^-1 mu_c, b_c = - mu_c^T Sigma^-1 mu_c / 2, Sigma shrunk. Source: Hayes and
    Kanan (CVPR-W 2020). Where we differ: the covariance comes from additive sums instead
    of their running update, so the net does not depend on the order of images or tasks,
    and the shrinkage is towards the mean variance with a strength from the data ("oas")
    instead of 1e-4 towards 1.

    :param shrinkage: "oas", or a number in (0, 1].
    """

    def __init__(self, backbone: FrozenBackbone, *, shrinkage: float | str = "oas") -> None:
        super().__init__(backbone)
        if shrinkage != "oas" and not (isinstance(shrinkage, (int, float)) and 0 < shrinkage <= 1):
            raise ValueError(f"SLDANet: shrinkage={shrinkage!r}; choose 'oas' or 0 < number <= 1")
        self.shrinkage = shrinkage
        self._solved: tuple[Tensor, Tensor] | None = None

    def build(self, dim: int) -> None:
        """Make the statistics."""
        self.statistics = SharedGaussian(dim)

    def grow(self, labels: list[int]) -> None:
        """Make room for classes that were not seen before."""
        self.statistics.grow(len(set(labels) - set(self.classes)))
        self._solved = None

    def learn(self, z: Tensor, y: Tensor) -> None:
        """Add features [B, d] with labels [B] of known classes."""
        self.statistics.update(z, self.positions(y))
        self._solved = None

    def solve(self) -> tuple[Tensor, Tensor]:
        """Return weights [C, d] and biases [C] of the discriminant."""
        if self._solved is None:
            s = self.statistics
            sigma = shrunk(s.covariance, float(s.counts.sum()), self.shrinkage)
            means = s.means
            # constant features have no variance: any positive floor keeps the solve finite
            floor = torch.finfo(sigma.dtype).eps * max(1.0, float(means.abs().max()) ** 2)
            sigma = sigma + floor * torch.eye(len(sigma), dtype=sigma.dtype, device=sigma.device)
            weights = torch.cholesky_solve(means.T, torch.linalg.cholesky(sigma)).T
            biases = -(weights * means).sum(dim=1) / 2
            # a class whose images are still to come must not win by its zero mean
            biases = torch.where(s.counts > 0, biases, biases.min() - 1e4)
            self._solved = weights, biases
        return self._solved

    @torch.no_grad()
    def classify(self, z: Tensor, task_ids: Tensor | None = None) -> Tensor:
        """Return outputs [B, width]: the discriminant scores for features z [B, d]."""
        if not self.n_tasks:
            return self.to_outputs(z)
        weights, biases = self.solve()
        return self.to_outputs((z.to(weights) @ weights.T + biases).to(z.dtype))
