"""Things by name, where an unknown name is an error that tells the nearest known one."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Callable[..., Any])


class Registry(Generic[T]):
    """Names and what they stand for.

    :param kind: what the things are, for messages.

    >>> shapes = Registry("shape")
    >>> @shapes.register("square")
    ... def square(): ...
    >>> shapes.find("sqare")
    Traceback (most recent call last):
    ValueError: unknown shape 'sqare': did you mean 'square'? known are square
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._known: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Make a class or function known by ``name`` (decorator)."""

        def decorate(thing: T) -> T:
            if name in self._known:
                taken = getattr(self._known[name], "__name__", self._known[name])
                raise ValueError(f"the {self.kind} name {name!r} is taken by {taken}")
            self._known[name] = thing
            return thing

        return decorate

    def names(self) -> list[str]:
        """Return the known names, sorted."""
        return sorted(self._known)

    def find(self, name: str) -> Any:
        """Return what a name stands for."""
        if name not in self._known:
            near = difflib.get_close_matches(name, self._known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(
                f"unknown {self.kind} {name!r}: {hint}known are {', '.join(self.names())}"
            )
        return self._known[name]
