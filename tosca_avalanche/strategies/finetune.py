"""Finetune: the whole transformer on the newest classes alone. The floor."""

from __future__ import annotations

from typing import Any

from torch import nn

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.modules import FinetuneNet
from tosca_avalanche.strategies.adapting import AdaptingStrategy
from tosca_avalanche.strategies.registry import register


@register("finetune")
class FinetuneStrategy(AdaptingStrategy):
    """Train a copy of the whole backbone and a linear head; forget as one will.

    SGD 1e-3, momentum 0.9, 20 epochs, batch 128, cross-entropy on the new classes only,
    as LAMDA-PILOT; where it says nothing: no weight decay, cosine to 0. The backbone that
    was given is not changed.

    :param model: a backbone of any kind.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        train_epochs: int = 20,
        train_mb_size: int = 128,
        seed: int = 0,
        **common: Any,
    ) -> None:
        super().__init__(
            model=FinetuneNet(load_backbone(model), seed=seed),
            lr=lr,
            weight_decay=weight_decay,
            train_epochs=train_epochs,
            train_mb_size=train_mb_size,
            seed=seed,
            **common,
        )
