"""Class-incremental learning on a frozen vision transformer: TOSCA and its peers.

The names below load on first use, so that the plain-torch parts can be used
without paying for the import of Avalanche (about two seconds).
"""

from __future__ import annotations

import importlib
from typing import Any

from tosca_avalanche.version import __version__

_PUBLIC = {
    "load_backbone": "tosca_avalanche.backbones",
    "FrozenBackbone": "tosca_avalanche.backbones",
    "LuCA": "tosca_avalanche.modules",
    "ModuleBank": "tosca_avalanche.modules",
    "CosineHead": "tosca_avalanche.modules",
    "ToscaNet": "tosca_avalanche.modules",
    "ROUTED": "tosca_avalanche.modules",
    "PrototypeNet": "tosca_avalanche.modules",
    "export_onnx": "tosca_avalanche.export",
    "from_official": "tosca_avalanche.official",
    "ToscaClassifier": "tosca_avalanche.learner",
    "LuCAPlugin": "tosca_avalanche.plugins",
    "ProgressPlugin": "tosca_avalanche.plugins",
    "AccuracyMatrixPlugin": "tosca_avalanche.plugins",
    "TOSCAStrategy": "tosca_avalanche.strategies",
    "APERStrategy": "tosca_avalanche.strategies",
    "CODAPromptStrategy": "tosca_avalanche.strategies",
    "DualPromptStrategy": "tosca_avalanche.strategies",
    "EASEStrategy": "tosca_avalanche.strategies",
    "FinetuneStrategy": "tosca_avalanche.strategies",
    "JointFinetuneStrategy": "tosca_avalanche.strategies",
    "JointStrategy": "tosca_avalanche.strategies",
    "L2PStrategy": "tosca_avalanche.strategies",
    "MOSStrategy": "tosca_avalanche.strategies",
    "RanPACStrategy": "tosca_avalanche.strategies",
    "RoutedTOSCAStrategy": "tosca_avalanche.strategies",
    "SLDAStrategy": "tosca_avalanche.strategies",
    "SimpleCILStrategy": "tosca_avalanche.strategies",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
