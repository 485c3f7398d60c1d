"""APER-Adapter: adapters from the first task, then class means (IJCV 2024)."""

from __future__ import annotations

from typing import Any

from torch import nn

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.modules import APERNet
from tosca_avalanche.strategies.first_task import FirstTaskStrategy
from tosca_avalanche.strategies.registry import register


@register("aper")
class APERStrategy(FirstTaskStrategy):
    """Adapters on the first experience; prototypes of [frozen CLS, adapted CLS] ever after.

    :param model: a backbone that is a timm VisionTransformer.
    :param width: of the adapters.
    :param paired: False leaves the frozen CLS out.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        width: int = 64,
        paired: bool = True,
        seed: int = 0,
        **common: Any,
    ) -> None:
        net = APERNet(load_backbone(model), width=width, paired=paired, seed=seed)
        super().__init__(model=net, seed=seed, **common)
