"""Strategies by the names that experiments use."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TypeVar

_STRATEGIES: dict[str, type] = {}
T = TypeVar("T", bound=type)


def register(name: str) -> Callable[[T], T]:
    """Make a strategy class known by ``name`` (class decorator)."""

    def decorate(cls: T) -> T:
        if name in _STRATEGIES:
            raise ValueError(f"the name {name!r} is taken by {_STRATEGIES[name].__name__}")
        _STRATEGIES[name] = cls
        return cls

    return decorate


def strategy_names() -> list[str]:
    """Return the known names, sorted."""
    return sorted(_STRATEGIES)


def find_strategy(name: str) -> type:
    """Return the strategy class of a name; an unknown one is an error that names the nearest."""
    if name not in _STRATEGIES:
        near = difflib.get_close_matches(name, _STRATEGIES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown method {name!r}: {hint}known are {', '.join(strategy_names())}")
    return _STRATEGIES[name]
