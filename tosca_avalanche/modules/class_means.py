"""Class prototypes: exact running means of feature vectors."""

from __future__ import annotations

import torch
from torch import Tensor


class ClassMeans:
    """Mean feature of each class, from sums in double precision.

    Double sums make the mean independent of the order in which images and batches
    arrive, to far below single precision: prototypes then depend on the data alone.

    >>> means = ClassMeans(dim=2)
    >>> means.update(torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]]), torch.tensor([7, 7, 2]))
    >>> means.labels
    [2, 7]
    >>> means.mean([7, 2])
    tensor([[2., 0.],
            [0., 5.]])
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.sums: dict[int, Tensor] = {}
        self.counts: dict[int, int] = {}

    @property
    def labels(self) -> list[int]:
        """Labels seen, in increasing order."""
        return sorted(self.sums)

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Add a batch: features [B, d], integer labels [B]."""
        if features.dim() != 2 or features.shape[1] != self.dim or len(features) != len(labels):
            raise ValueError(
                f"ClassMeans: expected features [B, {self.dim}] and labels [B], got "
                f"{tuple(features.shape)} and {tuple(labels.shape)}"
            )
        features = features.detach().to("cpu", torch.float64)
        uniques, inverse = torch.unique(labels.detach().cpu(), return_inverse=True)
        sums = torch.zeros(len(uniques), self.dim, dtype=torch.float64)
        sums.index_add_(0, inverse, features)
        counts = torch.bincount(inverse, minlength=len(uniques))
        for label, total, count in zip(uniques.tolist(), sums, counts.tolist(), strict=True):
            self.sums[label] = self.sums.get(label, 0) + total
            self.counts[label] = self.counts.get(label, 0) + count

    def mean(self, labels: list[int]) -> Tensor:
        """Return the means [len(labels), d] in single precision, in the order asked for."""
        missing = [label for label in labels if label not in self.sums]
        if missing:
            raise ValueError(f"ClassMeans: no image was seen of class {missing[0]}")
        if not labels:
            return torch.empty(0, self.dim)
        return torch.stack([self.sums[c] / self.counts[c] for c in labels]).float()
