"""SimpleCIL: nearest class mean by cosine on frozen features (IJCV 2024)."""

from __future__ import annotations

from typing import Any

from torch import nn

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.modules import PrototypeNet
from tosca_avalanche.strategies.one_pass import OnePassStrategy
from tosca_avalanche.strategies.registry import register


@register("simplecil")
class SimpleCILStrategy(OnePassStrategy):
    """Class prototypes from one pass over each experience; no parameter is trained.

    A prototype is the mean of the raw features of a class's training images (evaluation
    transform); the score is the cosine. The final model does not depend on the class
    order or on the split into experiences.

    :param model: the backbone: from ``load_backbone``, or any module from images to [B, d].
    """

    def __init__(self, *, model: nn.Module, **common: Any) -> None:
        super().__init__(model=PrototypeNet(load_backbone(model)), **common)
