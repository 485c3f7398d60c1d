"""Running class sums of features, their means, and the cosine to them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ClassSums(nn.Module):
    """Sum and count of each class's features, in double precision.

    Sums make the means independent of the order of images, batches and tasks; a class
    that comes again updates its mean.

    :param dim: feature width d.
    """

    sums: Tensor
    counts: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(0, dim, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(0, dtype=torch.int64))

    def grow(self, n: int) -> None:
        """Make room for n more classes."""
        self.sums = torch.cat([self.sums, self.sums.new_zeros(n, self.sums.shape[1])])
        self.counts = torch.cat([self.counts, self.counts.new_zeros(n)])

    @torch.no_grad()
    def update(self, z: Tensor, index: Tensor) -> None:
        """Add features [B, d] of the classes at positions ``index`` [B]."""
        self.sums.index_add_(0, index, z.to(self.sums))
        self.counts.index_add_(0, index, torch.ones_like(index))

    @property
    def means(self) -> Tensor:
        """Mean feature of each class [C, d]; 0 before any image."""
        return self.sums / self.counts.clamp_min(1).unsqueeze(1)


class Prototypes(ClassSums):
    """Class means in single precision, and the cosine to them."""

    @property
    def means(self) -> Tensor:
        """Mean feature of each class [C, d]; 0 before any image."""
        return super().means.float()

    def forward(self, z: Tensor) -> Tensor:
        """Return cos(z, mean) [B, C] for features z [B, d]."""
        return F.linear(F.normalize(z, dim=-1), F.normalize(self.means, dim=-1))
