"""RanPAC as a plain torch net: random projection and ridge regression on the features."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.first_task import FirstTaskNet
from tosca_avalanche.modules.projection import RidgeProjection, choose_ridge
from tosca_avalanche.seeding import generator

SCORES = ("linear", "cosine")


class RanPACNet(FirstTaskNet):
    """Ridge regression to one-hot labels on ReLU(f W), f the adapted (or frozen) [CLS].

    The ridge strength of a task is chosen on a held-out fifth of its own training
    features (shuffled by a private generator), with weights from the other four fifths
    of this task alone; the final weights use all data. A task with too few images for a
    split keeps the earlier strength (1 at first).

    :param petl: train adapters on the first task; False keeps the frozen [CLS].
    :param projection: M.
    :param ridge: a fixed strength instead of the choice.
    :param scores: "linear" (authors) or "cosine" (PILOT).
    """

    gives_probabilities = False  # cosines or regression scores, at no scale of their own

    def __init__(
        self,
        backbone: FrozenBackbone,
        *,
        petl: bool = True,
        width: int = 64,
        projection: int = 10_000,
        ridge: float | None = None,
        scores: str = "linear",
        seed: int = 0,
    ) -> None:
        super().__init__(backbone, adapt=petl, width=width, seed=seed)
        if scores not in SCORES:
            raise ValueError(f"RanPACNet: scores={scores!r}; choose one of {SCORES}")
        if projection < 1 or (ridge is not None and ridge <= 0):
            raise ValueError(
                f"RanPACNet: projection={projection} and ridge={ridge} must be positive"
            )
        self.size, self.fixed_ridge, self.scores = projection, ridge, scores
        self.ridge = 1.0 if ridge is None else ridge
        self._task_z: list[Tensor] = []
        self._task_y: list[Tensor] = []
        self._weights: tuple[list[Any], Tensor] | None = None

    def build(self, dim: int) -> None:
        """Make the projection."""
        self.statistics = RidgeProjection(dim, self.size, self.seed)

    def grow(self, labels: list[int]) -> None:
        """Make room for classes that were not seen before."""
        self.statistics.grow(len(set(labels) - set(self.classes)))

    def learn(self, z: Tensor, y: Tensor) -> None:
        """Add features [B, d] with labels [B]; kept until the end of the task for the ridge."""
        index = self.positions(y)
        self.statistics.update(z, index)
        if self.fixed_ridge is None:
            self._task_z.append(z)
            self._task_y.append(index)

    def end_task(self) -> None:
        """Choose the ridge on this task's own features, then forget them."""
        if not self._task_z:
            return
        z, index = torch.cat(self._task_z), torch.cat(self._task_y)
        self._task_z, self._task_y = [], []
        n = int(0.8 * len(z))
        if 0 < n < len(z):
            order = torch.randperm(len(z), generator=generator(self.seed, "ridge", self.n_tasks))
            order = order.to(z.device)
            h, y = self.statistics.project(z[order]), F.one_hot(index[order], len(self.classes))
            self.ridge = choose_ridge(h[:n], y[:n], h[n:], y[n:])

    @torch.no_grad()
    def classify(self, z: Tensor, task_ids: Tensor | None = None) -> Tensor:
        """Return outputs [B, width] for features z [B, d]."""
        if not self.n_tasks:
            return self.to_outputs(z)
        if self._task_z:  # statistics are not complete: scores in training mean nothing yet
            return self.to_outputs(z.new_zeros(len(z), len(self.classes)))
        sums = (self.statistics.G, self.statistics.Q)
        mark = [self.ridge, *((s.data_ptr(), s._version, s.device) for s in sums)]
        if self._weights is None or self._weights[0] != mark:
            self._weights = mark, self.statistics.solve(self.ridge)
        weights = self._weights[1]
        h = self.statistics.project(z)
        if self.scores == "cosine":
            return self.to_outputs(F.normalize(h) @ F.normalize(weights, dim=0))
        return self.to_outputs(h @ weights)

    def rest(self) -> dict[str, Any]:
        """Return what was learned beside tensors, the ridge strength included."""
        return {**super().rest(), "ridge": self.ridge}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        super().restore(tensors, rest)
        self.ridge = rest["ridge"]
