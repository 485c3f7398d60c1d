"""Frozen backbones: the embedded tiny ViT, tagged timm models, or any module."""

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.backbones.load import load_backbone
from tosca_avalanche.backbones.transforms import Transforms

__all__ = ["FrozenBackbone", "Transforms", "load_backbone"]
