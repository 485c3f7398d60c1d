"""The tidy rows of a run: one number a row, with the count behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tosca_avalanche.metrics import (
    Score,
    accuracy_after,
    average_accuracy,
    average_task_accuracy,
    backward_transfer,
    expected_calibration_error,
    forgetting_after_learning,
    forgetting_max,
    last_accuracy,
    selection_accuracy,
    task_accuracy,
)

COLUMNS = [
    "run_id",
    "method",
    "stream",
    "seed",
    "protocol",
    "after_task",
    "eval_task",
    "metric",
    "value",
    "n",
]


def accuracy_rows(correct: np.ndarray, total: np.ndarray) -> list[dict[str, Any]]:
    """Return every accuracy metric of R[t, i] = correct / total (both [T, T] counts).

    ``acc`` is R[t, i] with ``eval_task`` i; ``A_t``, forgetting and ``bwt`` come after
    each task; ``A_bar``, ``A_last`` and ``avg_task_acc`` once, after the last.
    """
    last = len(correct) - 1
    rows = []
    for t in range(last + 1):
        rows += [row("acc", task_accuracy(correct, total, t, i), t, i) for i in range(t + 1)]
        rows.append(row("A_t", accuracy_after(correct, total, t), t))
        rows.append(row("forgetting_max", forgetting_max(correct, total, t), t))
        rows.append(
            row("forgetting_after_learning", forgetting_after_learning(correct, total, t), t)
        )
        rows.append(row("bwt", backward_transfer(correct, total, t), t))
    rows.append(row("A_bar", average_accuracy(correct, total), last))
    rows.append(row("A_last", last_accuracy(correct, total), last))
    rows.append(row("avg_task_acc", average_task_accuracy(correct, total), last))
    return rows


def selection_rows(tables: dict[int, np.ndarray]) -> list[dict[str, Any]]:
    """Return ``selection_acc`` after each task from its task x module table."""
    return [row("selection_acc", selection_accuracy(table), t) for t, table in tables.items()]


def calibration_rows(tables: dict[int, np.ndarray]) -> list[dict[str, Any]]:
    """Return ``ece`` after each task from its table of images by confidence."""
    return [row("ece", expected_calibration_error(table), t) for t, table in tables.items()]


def row(metric: str, score: Score, after: int, on: int | None = None) -> dict[str, Any]:
    """Return one row; an undefined value is None with n = 0."""
    n = 0 if score.value is None else int(score.n)
    return {
        "after_task": after,
        "eval_task": on,
        "metric": metric,
        "value": score.value,
        "n": n,
    }
