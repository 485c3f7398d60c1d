"""Streams by the names that experiments use."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, TypeVar

_STREAMS: dict[str, Callable[..., Any]] = {}
F = TypeVar("F", bound=Callable[..., Any])


def register_stream(name: str) -> Callable[[F], F]:
    """Make a function ``(transforms, *, settings...) -> benchmark`` known by ``name``."""

    def decorate(function: F) -> F:
        if name in _STREAMS:
            raise ValueError(f"the stream name {name!r} is taken")
        _STREAMS[name] = function
        return function

    return decorate


def stream_names() -> list[str]:
    """Return the known names, sorted."""
    return sorted(_STREAMS)


def find_stream(name: str) -> Callable[..., Any]:
    """Return the builder of a stream; an unknown name is an error that names the nearest."""
    if name not in _STREAMS:
        near = difflib.get_close_matches(name, _STREAMS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown stream {name!r}: {hint}known are {', '.join(stream_names())}")
    return _STREAMS[name]
