"""The loop of methods that train adapters on the first task only."""

from __future__ import annotations

from typing import Any

from torch import nn

from tosca_avalanche.strategies.adapting import Adapting
from tosca_avalanche.strategies.one_pass import OnePassStrategy


class FirstTaskStrategy(Adapting, OnePassStrategy):
    """First experience: adapters and a proxy head by SGD on images. All: one statistics pass.

    Settings of APER's authors for the first experience: SGD 0.01, momentum 0.9, weight
    decay 5e-4 over adapters, rows and sigma, batch 48, 20 epochs, cosine to 0.
    """

    meaningless = ()
    fixed_keys = ("train_epochs",)

    def __init__(self, *, model: nn.Module, first_epochs: int = 20, **common: Any) -> None:
        self.first_epochs = first_epochs
        super().__init__(model=model, **common)

    @property
    def views_now(self) -> int | str:
        """Statistics are made of the evaluation view, whatever view the adapters see."""
        return self.train_views if self.adapting else 0

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """Make room for the classes, and the optimiser of the first experience."""
        self.train_epochs = self.first_epochs if self.adapting else 1
        super().check_model_and_optimizer(**kwargs)

    def training_epoch(self, **kwargs: Any) -> None:
        """Train the adapters, or add up statistics."""
        if self.adapting:
            super(OnePassStrategy, self).training_epoch(**kwargs)
        else:
            super().training_epoch(**kwargs)

    def _after_training_exp(self, **kwargs: Any) -> None:
        if self.adapting:
            self.model.finish_adapting()
            for z, y in self.feature_batches(self.experience.dataset.eval()):
                self.model.learn(z, y.to(z.device))
        super()._after_training_exp(**kwargs)
