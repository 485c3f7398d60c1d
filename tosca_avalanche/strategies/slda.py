"""SLDA: linear discriminant analysis on frozen features, the strong simple control."""

from __future__ import annotations

from typing import Any

from torch import nn

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.modules import SLDANet
from tosca_avalanche.strategies.one_pass import OnePassStrategy
from tosca_avalanche.strategies.registry import register


@register("slda")
class SLDAStrategy(OnePassStrategy):
    """Class means and one shared covariance of the raw features; exemplar-free.

    Additive statistics: the final model does not depend on the order of images, classes
    or experiences, nor on the split. See :class:`~tosca_avalanche.modules.SLDANet`.

    :param model: the backbone: from ``load_backbone``, or any module from images to [B, d].
    :param shrinkage: of the covariance: "oas" (from the data) or a number in (0, 1].
    """

    def __init__(self, *, model: nn.Module, shrinkage: float | str = "oas", **common: Any) -> None:
        super().__init__(model=SLDANet(load_backbone(model), shrinkage=shrinkage), **common)
