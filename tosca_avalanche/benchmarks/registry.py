"""Streams by the names that experiments use: functions (transforms, *, settings) -> benchmark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tosca_avalanche.registry import Registry

STREAMS: Registry[Callable[..., Any]] = Registry("stream")
register_stream = STREAMS.register
stream_names = STREAMS.names
find_stream = STREAMS.find
