"""RanPAC: random projection and ridge regression (NeurIPS 2023)."""

from __future__ import annotations

from typing import Any

from torch import nn

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.modules import RanPACNet
from tosca_avalanche.strategies.first_task import FirstTaskStrategy
from tosca_avalanche.strategies.registry import register


@register("ranpac")
class RanPACStrategy(FirstTaskStrategy):
    """Adapters on the first experience (``petl``), then ridge regression on ReLU(f W).

    See :class:`~tosca_avalanche.modules.RanPACNet`. The Gram matrix holds M x M numbers:
    400 MB at the default M = 10,000.

    :param model: the backbone; with ``petl`` a timm VisionTransformer.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        petl: bool = True,
        width: int = 64,
        projection: int = 10_000,
        ridge: float | None = None,
        scores: str = "linear",
        seed: int = 0,
        **common: Any,
    ) -> None:
        net = RanPACNet(
            load_backbone(model),
            petl=petl,
            width=width,
            projection=projection,
            ridge=ridge,
            scores=scores,
            seed=seed,
        )
        super().__init__(model=net, seed=seed, **common)
