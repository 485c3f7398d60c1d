"""Frames of results and a reader of PNG headers for the tests of the plots."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

Row = dict[str, Any]


def _row(metric: str, after_task: int, value: float | None, **other: Any) -> Row:
    row = {
        "run_id": "r",
        "method": "TOSCA",
        "stream": "toy 3x2",
        "seed": 1,
        "protocol": "per-sample",
        "after_task": after_task,
        "eval_task": None,
        "metric": metric,
        "value": value,
        "n": 10,
    }
    return row | other


@pytest.fixture
def row() -> Callable[..., Row]:
    """Make one row of the tidy frame."""
    return _row


@pytest.fixture
def two_methods() -> pd.DataFrame:
    """Three tasks: TOSCA with two seeds, SimpleCIL with one, every metric that is drawn."""
    rows = []
    a_t = {"TOSCA": {1: [0.9, 0.7, 0.5], 2: [0.8, 0.7, 0.6]}, "SimpleCIL": {1: [0.6, 0.5, 0.4]}}
    lost = {"TOSCA": {1: [None, 0.1, 0.3], 2: [None, 0.2, 0.3]}, "SimpleCIL": {1: [None, 0.0, 0.1]}}
    for method, seeds in a_t.items():
        for seed, values in seeds.items():
            for t, value in enumerate(values):
                who = {"method": method, "seed": seed, "run_id": f"{method}-{seed}"}
                rows.append(_row("A_t", t, value, **who))
                rows.append(_row("forgetting_max", t, lost[method][seed][t], **who))
                rows += [_row("acc", t, value - 0.1 * i, eval_task=i, **who) for i in range(t + 1)]
    return pd.DataFrame(rows)


@pytest.fixture
def many_series() -> Callable[[int, int], pd.DataFrame]:
    """Make (number of methods, number of tasks) -> a frame with two seeds each."""

    def make(n_methods: int, n_tasks: int) -> pd.DataFrame:
        return pd.DataFrame(
            _row(metric, t, 0.9 - 0.05 * m - 0.01 * t - 0.01 * seed, method=f"m{m}", seed=seed)
            for metric in ("A_t", "forgetting_max")
            for m in range(n_methods)
            for seed in (1, 2)
            for t in range(n_tasks)
        )

    return make


def _png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n", f"{path} is not a PNG"
    return struct.unpack(">II", head[16:24])


@pytest.fixture
def png_size() -> Callable[[Path], tuple[int, int]]:
    """Read width and height in pixels from a PNG's header."""
    return _png_size
