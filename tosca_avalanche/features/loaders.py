"""Loaders in a seeded order, over images or over features that are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Sampler

from tosca_avalanche.seeding import generator


@dataclass
class FeatureData:
    """A data set as features: z [N, d], y [N], and task labels [N] where the items have them."""

    z: Tensor
    y: Tensor
    t: Tensor | None = None


class EpochOrder(Sampler[int]):
    """Every image once per epoch, in an order that depends on seed, task and epoch alone."""

    def __init__(self, n: int, seed: int, task: int, shuffle: bool = True) -> None:
        self.n, self.seed, self.task, self.shuffle, self.epoch = n, seed, task, shuffle, 0

    def order(self) -> Tensor:
        """Return the order of the current epoch [N]."""
        if not self.shuffle:
            return torch.arange(self.n)
        return torch.randperm(
            self.n, generator=generator(self.seed, "shuffle", self.task, self.epoch)
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())

    def __len__(self) -> int:
        return self.n


class FeatureLoader:
    """Batches of stored features: [z, y] or [z, y, t], cut from tensors.

    :param views: one FeatureData per view; epoch e uses view e modulo their number.
    :param order: order of the images; None keeps theirs.
    """

    def __init__(
        self, views: list[FeatureData], batch_size: int, order: EpochOrder | None = None,
        drop_last: bool = False,
    ) -> None:  # fmt: skip
        self.views, self.batch_size, self.order = views, batch_size, order
        self.stop = len(views[0].y)
        if drop_last:
            self.stop -= self.stop % batch_size

    def __len__(self) -> int:
        return -(-self.stop // self.batch_size)

    def __iter__(self) -> Iterator[list[Tensor]]:
        epoch = 0 if self.order is None else self.order.epoch
        data = self.views[epoch % len(self.views)]
        parts = [data.z, data.y] if data.t is None else [data.z, data.y, data.t]
        order = None if self.order is None else self.order.order()
        for start in range(0, self.stop, self.batch_size):
            end = min(start + self.batch_size, self.stop)
            index = slice(start, end) if order is None else order[start:end]
            yield [part[index] for part in parts]
