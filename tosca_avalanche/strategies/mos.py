"""MOS: merged adapters, an aligned head, self-refined retrieval (AAAI 2025)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.modules import MOSNet
from tosca_avalanche.strategies.adapting import AdaptingStrategy
from tosca_avalanche.strategies.registry import register


@register("mos")
class MOSStrategy(AdaptingStrategy):
    """Adapters that start from the last task's and are merged with the earlier ones.

    The defaults are the authors' settings for CIFAR; the others' lr / batch / weight decay
    / epochs: CUB .01/32/5e-4/10, ImageNet-R .05/16/5e-3/10, ImageNet-A .05/32/5e-3/10 with
    ``covariance="diagonal"``. See :class:`~tosca_avalanche.modules.MOSNet`.

    :param model: a backbone that is a timm VisionTransformer.
    :param lr: of the adapters; the head learns at a tenth of it.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        width: int = 16,
        merge: str = "step",
        separation: float = 0.1,
        covariance: str = "full",
        align_epochs: int = 30,
        align_lr: float = 5e-3,
        lr: float = 0.03,
        train_epochs: int = 20,
        train_mb_size: int = 48,
        seed: int = 0,
        **common: Any,
    ) -> None:
        net = MOSNet(
            load_backbone(model),
            width=width,
            merge=merge,
            separation=separation,
            covariance=covariance,
            align_epochs=align_epochs,
            align_samples=5 * train_mb_size,
            align_lr=align_lr,
            seed=seed,
        )
        super().__init__(
            model=net,
            lr=lr,
            train_epochs=train_epochs,
            train_mb_size=train_mb_size,
            seed=seed,
            **common,
        )

    def default_optimizer(self, parameters: list[nn.Parameter]) -> Optimizer:
        """Return the authors' SGD: the head at a tenth of the adapters' rate."""
        head = {id(p) for p in self.model.head.parameters()}
        groups = [
            {"params": [p for p in parameters if id(p) not in head], "lr": self.lr},
            {"params": [p for p in parameters if id(p) in head], "lr": 0.1 * self.lr},
        ]
        return SGD(groups, self.lr, self.momentum, weight_decay=self.weight_decay)

    def criterion(self) -> Tensor:
        """Return cross-entropy, and in training the term that sets features apart."""
        loss: Tensor = super().criterion()
        return loss + self.model.separation_loss() if self.is_training and self.adapting else loss

    def optimizer_step(self) -> None:
        """Step, then merge."""
        super().optimizer_step()
        self.model.merge()
