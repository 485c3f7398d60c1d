"""EASE: an adapter subspace per task, prototypes in all of them (CVPR 2024)."""

from __future__ import annotations

from typing import Any

from torch import nn

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.modules import EASENet
from tosca_avalanche.strategies.adapting import AdaptingStrategy
from tosca_avalanche.strategies.registry import register


@register("ease")
class EASEStrategy(AdaptingStrategy):
    """Fresh adapters and a throw-away head for each experience; prototypes answer.

    The defaults are the authors' settings for CIFAR; the others' lr / batch / weight decay
    / alpha: CUB .008/32/5e-4/.05, ImageNet-A .05/32/5e-3/.1, ImageNet-R .05/16/5e-3/.1.
    An image passes once through each set of adapters, ever: after T tasks a test image
    seen before costs one pass, a new one T.

    :param model: a backbone that is a timm VisionTransformer.
    :param width: of the adapters.
    :param alpha: weight of the other subspaces.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        width: int = 64,
        alpha: float = 0.1,
        lr: float = 0.025,
        train_epochs: int = 20,
        seed: int = 0,
        **common: Any,
    ) -> None:
        net = EASENet(load_backbone(model), width=width, alpha=alpha, seed=seed)
        super().__init__(model=net, lr=lr, train_epochs=train_epochs, seed=seed, **common)
