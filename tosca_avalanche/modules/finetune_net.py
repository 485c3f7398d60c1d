"""Finetune as a plain torch net: nothing is frozen, nothing is kept. The floor."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.incremental import IncrementalNet
from tosca_avalanche.modules.linear_head import LinearHead
from tosca_avalanche.seeding import derive_seed, generator, seeded_globals


class FinetuneNet(IncrementalNet):
    """The whole transformer and a linear head, trained on the newest classes alone.

    Trains a copy of the backbone in single precision: the one that was given stays as it
    is, and the copy counts among the learned numbers.

    :param backbone: of any kind.
    """

    def __init__(self, backbone: FrozenBackbone, *, seed: int = 0) -> None:
        super().__init__(backbone)
        self.network = copy.deepcopy(backbone.module).requires_grad_(True)
        self.seed = seed
        self.statistics_from: list[FrozenBackbone] = []
        self.images_tested = self._steps = 0

    @property
    def extractors(self) -> list[FrozenBackbone]:
        """None: the transformer changes with every task, so that no feature can be kept."""
        return []

    @property
    def passes_per_image(self) -> int:
        """One pass for an answer."""
        return 1

    @property
    def images_passed(self) -> int:
        """Images passed through the trained transformer for answers."""
        return self.passed_before + self.images_tested

    def features(self, x: Tensor) -> Tensor:
        """Return the features [B, d] of images, from the transformer as it is now."""
        if not self.training:
            self.images_tested += len(x)
        # batch norm can't learn from one image alone
        self.network.train(self.training and len(x) > 1)
        z: Tensor = self.network(x)
        return z

    def build(self, dim: int) -> None:
        """Make the head."""
        self.head = LinearHead(dim)

    def grow(self, labels: list[int]) -> None:
        """Add head rows."""
        self.head.grow(len(labels), generator(self.seed, "head", self.n_tasks))
        self.adapting, self._steps = True, 0

    def task_outputs(self, x: Tensor) -> Tensor:
        """Return outputs [B, width] over the newest task's classes for its images.

        In evaluation mode, amid training, over all seen classes.
        """
        if not self.training:
            return self.classify(self.features(x))
        # a transformer with dropout draws from the global state, which is nobody's here
        seed = derive_seed(self.seed, "forward", self.n_tasks, self._steps)
        with seeded_globals(seed, x.device):
            z = self.features(x)
        self.images_trained += len(x)
        self._steps += 1
        return self.task_to_outputs(self.head(z)[:, -len(self.task_classes[-1]) :])

    def finish_adapting(self) -> None:
        """Nothing to freeze."""
        self.adapting = False

    def classify(self, z: Tensor, task_ids: Tensor | None = None) -> Tensor:
        """Return outputs [B, width] over all seen classes for features z [B, d]."""
        return self.to_outputs(self.merge_rows(self.head(z)) if self.n_tasks else z)

    def take_shape(self, rest: dict[str, Any]) -> None:
        """The saved net was between tasks."""
        self.adapting = False
