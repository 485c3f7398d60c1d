"""The accuracy matrix R[t, i], built from predictions while Avalanche evaluates."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from avalanche.core import SupervisedPlugin

from tosca_avalanche.metrics import reliability_table


class AccuracyMatrixPlugin(SupervisedPlugin):
    """Counts right answers of each test experience after each trained one.

    Avalanche's own metrics keep working beside it. Evaluations inside training
    (``eval_every``) are not counted: row t is what the model knows after experience t.
    A repeated evaluation replaces the earlier one.

    An image belongs to the test experience it comes from, or, in an evaluation that mixes
    experiences (:func:`tosca_avalanche.benchmarks.mixed_experience`), to
    ``experience.sample_tasks``.

    Pure functions of ``correct`` and ``total`` give A_t, A-bar, forgetting and the rest:
    :mod:`tosca_avalanche.metrics`.

    :param stream: name of the stream to count.
    """

    def __init__(self, stream: str = "test") -> None:
        super().__init__()
        self.stream = stream
        self.trained = 0
        """Experiences trained so far; the current row is ``trained - 1``."""
        self.cells: dict[tuple[int, int], tuple[int, int]] = {}
        """(after task, test task) -> (correct, total)."""
        self.modules: dict[tuple[int, int], list[int]] = {}
        """(after task, test task) -> how often each module was chosen."""
        self.prompts: dict[tuple[int, int], list[int]] = {}
        """(after task, test task) -> how often each prompt was chosen."""
        self.reliability: dict[tuple[int, int], list[list[float]]] = {}
        """(after task, test task) -> images by confidence, where outputs are logits: see
        :func:`tosca_avalanche.metrics.reliability_table`."""
        self._training = False
        self._batches: list[tuple[np.ndarray | None, ...]] = []

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Stop counting."""
        self._training = True

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Start the next row."""
        self._training = False
        self.trained += 1

    def before_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Start the predictions of a test experience."""
        self._batches = []

    def after_eval_iteration(self, strategy: Any, **kwargs: Any) -> None:
        """Note which images of the batch were answered right, and by which module."""
        if self._counts(strategy):
            right = (strategy.mb_output.argmax(dim=1) == strategy.mb_y).cpu().numpy()
            chosen = [getattr(strategy.model, k, None) for k in ("last_modules", "last_prompts")]
            if getattr(strategy.model, "gives_probabilities", False):
                sure = torch.softmax(strategy.mb_output.double(), dim=1).max(dim=1).values
                chosen.append(sure.clamp(max=1))
            chosen += [None] * (3 - len(chosen))
            self._batches.append((right, *(None if c is None else c.cpu().numpy() for c in chosen)))

    def after_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Turn the predictions into cells of the current row."""
        if not self._counts(strategy):
            return
        row, experience = self.trained - 1, strategy.experience
        right = _joined([b[0] for b in self._batches])
        right = np.empty(0, dtype=bool) if right is None else right
        modules = _joined([b[1] for b in self._batches])
        prompts = _joined([b[2] for b in self._batches])
        sure = _joined([b[3] for b in self._batches])
        tasks = getattr(experience, "sample_tasks", None)
        if tasks is None:
            tasks = np.full(len(right), experience.current_experience)
        for task in map(int, {experience.current_experience, *tasks.tolist()}):
            mine = tasks == task
            if mine.any() or not hasattr(experience, "sample_tasks"):
                self.cells[row, task] = (int(right[mine].sum()), int(mine.sum()))
            if modules is not None and mine.any():
                counts = np.bincount(modules[mine], minlength=self.trained)
                self.modules[row, task] = counts.tolist()
            if sure is not None and mine.any():
                table = reliability_table(sure[mine], right[mine])
                self.reliability[row, task] = table.tolist()
            if prompts is not None and mine.any():
                size = strategy.model.pool_size
                self.prompts[row, task] = np.bincount(
                    prompts[mine].ravel(), minlength=size
                ).tolist()

    def _counts(self, strategy: Any) -> bool:
        stream = getattr(strategy.experience.origin_stream, "name", None)
        return not self._training and self.trained > 0 and stream == self.stream

    @property
    def correct(self) -> np.ndarray:
        """Right answers [T, T], row = after task, column = test task; 0 where not evaluated."""
        return self._matrix(0)

    @property
    def total(self) -> np.ndarray:
        """Test images [T, T], likewise."""
        return self._matrix(1)

    def _matrix(self, part: int) -> np.ndarray:
        size = max([self.trained, *(1 + max(key) for key in self.cells)])
        matrix = np.zeros((size, size), dtype=np.int64)
        for key, value in self.cells.items():
            matrix[key] = value[part]
        return matrix

    def selection_table(self, after_task: int) -> np.ndarray | None:
        """Return counts [tasks, modules] after a task; None for a method without modules."""
        rows = {i: m for (t, i), m in self.modules.items() if t == after_task and i <= after_task}
        if not rows:
            return None
        table = np.zeros((after_task + 1, after_task + 1), dtype=np.int64)
        for i, counts in rows.items():
            table[i, : len(counts)] = counts
        return table

    def reliability_table(self, after_task: int) -> np.ndarray | None:
        """Return images by confidence over the tasks seen; None where outputs are no logits."""
        cells = self.reliability.items()
        tables = [np.array(v) for (t, i), v in cells if t == after_task and i <= t]
        return sum(tables[1:], tables[0]) if tables else None

    def state(self) -> dict[str, Any]:
        """Return everything counted, as JSON-able values."""
        return {
            "trained": self.trained,
            "cells": [[*key, *value] for key, value in self.cells.items()],
            "modules": [[*key, value] for key, value in self.modules.items()],
            "prompts": [[*key, value] for key, value in self.prompts.items()],
            "reliability": [[*key, value] for key, value in self.reliability.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.trained = state["trained"]
        self.cells = {(t, i): (right, n) for t, i, right, n in state["cells"]}
        self.modules = {(t, i): counts for t, i, counts in state["modules"]}
        self.prompts = {(t, i): counts for t, i, counts in state["prompts"]}
        # runs interrupted under an earlier version have none
        self.reliability = {(t, i): table for t, i, table in state.get("reliability", [])}


def _joined(parts: list[np.ndarray | None]) -> np.ndarray | None:
    found = [p for p in parts if p is not None]
    return np.concatenate(found) if found else None
