"""One row per strategy: what the contract suite runs. A new method adds its row here."""

from __future__ import annotations

from tosca_avalanche.strategies import SimpleCILStrategy, SLDAStrategy, TOSCAStrategy

METHODS = {
    "tosca": (TOSCAStrategy, {"train_epochs": 3, "train_mb_size": 8, "lr": 0.1}),
    "simplecil": (SimpleCILStrategy, {}),
    "slda": (SLDAStrategy, {}),
}


def make(name: str, backbone, **settings):
    """Build a strategy quietly."""
    cls, own = METHODS[name]
    return cls(backbone, **{"evaluator": None, **own, **settings})
