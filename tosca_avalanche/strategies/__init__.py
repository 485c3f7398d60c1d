"""Avalanche strategies, one method a file. A new file here registers itself."""

import importlib
import pkgutil

from tosca_avalanche.strategies.registry import find_strategy, register, strategy_names

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

from tosca_avalanche.strategies.aper import APERStrategy  # noqa: E402
from tosca_avalanche.strategies.base import FrozenBackboneStrategy  # noqa: E402
from tosca_avalanche.strategies.codaprompt import CODAPromptStrategy  # noqa: E402
from tosca_avalanche.strategies.dualprompt import DualPromptStrategy  # noqa: E402
from tosca_avalanche.strategies.ease import EASEStrategy  # noqa: E402
from tosca_avalanche.strategies.finetune import FinetuneStrategy  # noqa: E402
from tosca_avalanche.strategies.joint import JointStrategy  # noqa: E402
from tosca_avalanche.strategies.joint_finetune import JointFinetuneStrategy  # noqa: E402
from tosca_avalanche.strategies.l2p import L2PStrategy  # noqa: E402
from tosca_avalanche.strategies.mos import MOSStrategy  # noqa: E402
from tosca_avalanche.strategies.ranpac import RanPACStrategy  # noqa: E402
from tosca_avalanche.strategies.simplecil import SimpleCILStrategy  # noqa: E402
from tosca_avalanche.strategies.slda import SLDAStrategy  # noqa: E402
from tosca_avalanche.strategies.tosca import TOSCAStrategy  # noqa: E402
from tosca_avalanche.strategies.tosca_routed import RoutedTOSCAStrategy  # noqa: E402

__all__ = [
    "APERStrategy",
    "CODAPromptStrategy",
    "DualPromptStrategy",
    "EASEStrategy",
    "FinetuneStrategy",
    "FrozenBackboneStrategy",
    "JointFinetuneStrategy",
    "JointStrategy",
    "L2PStrategy",
    "MOSStrategy",
    "RanPACStrategy",
    "RoutedTOSCAStrategy",
    "SLDAStrategy",
    "SimpleCILStrategy",
    "TOSCAStrategy",
    "find_strategy",
    "register",
    "strategy_names",
]
