"""Strategies by the names that experiments use."""

from __future__ import annotations

from tosca_avalanche.registry import Registry

STRATEGIES: Registry[type] = Registry("method")
register = STRATEGIES.register
strategy_names = STRATEGIES.names
find_strategy = STRATEGIES.find
