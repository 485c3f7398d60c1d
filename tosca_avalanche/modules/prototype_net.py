"""SimpleCIL as a plain torch net: class means of the frozen features, compared by cosine."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.incremental import IncrementalNet


class PrototypeNet(IncrementalNet):
    """Nearest class mean by cosine on frozen features (SimpleCIL, IJCV 2024). Nothing is trained.

    The prototype of a class is the mean raw feature of all its training images, so the
    final net does not depend on the class order or on the split into tasks. A class that
    comes again updates its mean.
    """

    sums: Tensor
    counts: Tensor

    def __init__(self, backbone: FrozenBackbone) -> None:
        super().__init__(backbone)
        # double precision: the mean must not depend on the order of batches
        self.register_buffer("sums", torch.empty(0, 0, dtype=torch.float64))
        self.register_buffer("counts", torch.empty(0, dtype=torch.int64))

    def build(self, dim: int) -> None:
        """Set the width of the sums."""
        self.sums = self.sums.new_empty(0, dim)

    def grow(self, labels: list[int]) -> None:
        """Make room for classes that were not seen before."""
        new = len(set(labels) - set(self.classes))
        self.sums = torch.cat([self.sums, self.sums.new_zeros(new, self.sums.shape[1])])
        self.counts = torch.cat([self.counts, self.counts.new_zeros(new)])

    @torch.no_grad()
    def learn(self, z: Tensor, y: Tensor) -> None:
        """Add features [B, d] with labels [B] of known classes."""
        index = self.positions(y)
        self.sums.index_add_(0, index, z.to(self.sums))
        self.counts.index_add_(0, index, torch.ones_like(index))

    @property
    def prototypes(self) -> Tensor:
        """Mean feature of each seen class [C, d], in order of appearance; 0 before any image."""
        return (self.sums / self.counts.clamp_min(1).unsqueeze(1)).float()

    def classify(self, z: Tensor, task_ids: Tensor | None = None) -> Tensor:
        """Return outputs [B, width]: cos(z, prototype) for features z [B, d]."""
        if not self.n_tasks:
            return self.to_outputs(z)
        cosine = F.linear(F.normalize(z, dim=-1), F.normalize(self.prototypes, dim=-1))
        return self.to_outputs(cosine)
