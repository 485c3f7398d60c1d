"""The loop of methods that train adapters on the first task only."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from tosca_avalanche.modules.incremental import pad_outputs
from tosca_avalanche.strategies.one_pass import OnePassStrategy


class FirstTaskStrategy(OnePassStrategy):
    """First experience: adapters and a proxy head by SGD on images. All: one statistics pass.

    Settings of APER's authors for the first experience: SGD 0.01, momentum 0.9, weight
    decay 5e-4 over adapters, rows and sigma, batch 48, 20 epochs, cosine to 0.
    """

    meaningless = ()

    def __init__(
        self,
        *,
        model: nn.Module,
        lr: float = 0.01,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        first_epochs: int = 20,
        train_mb_size: int = 48,
        **common: Any,
    ) -> None:
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.first_epochs = first_epochs
        super().__init__(model=model, train_mb_size=train_mb_size, **common)

    @property
    def adapting(self) -> bool:
        """True while the adapters learn."""
        return not self.model.adapted

    def features(self, dataset: Any, **kwargs: Any) -> Any:
        """Return stored features, once the backbone is what it will stay."""
        return None if self.adapting else super().features(dataset, **kwargs)

    @property
    def views_now(self) -> int | str:
        """Statistics are made of the evaluation view, whatever view the adapters see."""
        return self.train_views if self.adapting else 0

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """Make room for the classes, and the optimiser of the first experience."""
        self.train_epochs = self.first_epochs if self.adapting else 1
        super().check_model_and_optimizer(**kwargs)

    def default_optimizer(self, parameters: list[nn.Parameter]) -> Optimizer:
        """Return the authors' SGD."""
        return SGD(parameters, self.lr, self.momentum, weight_decay=self.weight_decay)

    def default_scheduler(self, optimizer: Optimizer, epochs: int) -> LRScheduler:
        """Return the authors' cosine to 0."""
        return CosineAnnealingLR(optimizer, T_max=max(1, epochs))

    def training_epoch(self, **kwargs: Any) -> None:
        """Train the adapters, or add up statistics."""
        if self.adapting:
            super(OnePassStrategy, self).training_epoch(**kwargs)
        else:
            super().training_epoch(**kwargs)

    def forward(self) -> Tensor:
        """Return the proxy head's outputs while adapting, the method's own afterwards."""
        if not self.adapting or not self.model.n_tasks:
            return super().forward()
        return pad_outputs(self.model.first_task_outputs(self.mb_x), int(self.mb_y.max()) + 1)

    def _after_training_exp(self, **kwargs: Any) -> None:
        if self.adapting:
            self.model.finish_adapting()
            for z, y in self.feature_batches(self.experience.dataset.eval()):
                self.model.learn(z, y.to(z.device))
        super()._after_training_exp(**kwargs)
