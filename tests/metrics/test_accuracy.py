"""Accuracies against hand-computed fractions and a slow literal oracle."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tosca_avalanche.metrics import (
    Score,
    accuracy_after,
    average_accuracy,
    average_task_accuracy,
    last_accuracy,
    task_accuracy,
)

# task sizes 10, 4 and 2 (the last task is one class of two images)
TOTAL = np.array([[10, 0, 0], [10, 4, 0], [10, 4, 2]])
CORRECT = np.array([[8, 0, 0], [9, 2, 0], [6, 3, 1]])


def test_task_accuracy_by_hand() -> None:
    assert task_accuracy(CORRECT, TOTAL, 0, 0) == Score(8 / 10, 10)
    assert task_accuracy(CORRECT, TOTAL, 2, 1) == Score(3 / 4, 4)
    assert task_accuracy(CORRECT, TOTAL, 2, 2) == Score(1 / 2, 2)


def test_accuracy_after_weighs_samples_and_not_tasks() -> None:
    assert accuracy_after(CORRECT, TOTAL, 0) == Score(8 / 10, 10)
    assert accuracy_after(CORRECT, TOTAL, 1) == Score(11 / 14, 14)  # (9 + 2) / (10 + 4)
    # (6 + 3 + 1) / (10 + 4 + 2) = 0.625; the mean over tasks would be 0.6166...
    assert accuracy_after(CORRECT, TOTAL, 2) == Score(10 / 16, 16)


def test_averages_by_hand() -> None:
    # (4/5 + 11/14 + 5/8) / 3 = (224 + 220 + 175) / 280 / 3 = 619/840
    score = average_accuracy(CORRECT, TOTAL)
    assert score.value == pytest.approx(619 / 840, abs=1e-15)
    assert score.n == 3
    assert last_accuracy(CORRECT, TOTAL) == Score(10 / 16, 16)
    # (8/10 + 2/4 + 1/2) / 3 = 3/5
    score = average_task_accuracy(CORRECT, TOTAL)
    assert score.value == pytest.approx(3 / 5, abs=1e-15)
    assert score.n == 3


def test_one_task_has_all_accuracies() -> None:
    for metric in (average_accuracy, average_task_accuracy):
        assert metric([[3]], [[4]]) == Score(0.75, 1)
    assert last_accuracy([[3]], [[4]]) == Score(0.75, 4)
    assert accuracy_after([[3]], [[4]], 0) == Score(0.75, 4)


def test_a_task_without_test_samples_is_undefined_and_left_out() -> None:
    total = np.array([[0, 0, 0], [0, 4, 0], [0, 4, 2]])
    correct = np.array([[0, 0, 0], [0, 2, 0], [0, 3, 1]])
    assert task_accuracy(correct, total, 0, 0) == Score(None, 0)
    assert accuracy_after(correct, total, 0) == Score(None, 0)
    # A_1 = 2/4, A_2 = 4/6; A_0 is undefined: (1/2 + 2/3) / 2 = 7/12
    score = average_accuracy(correct, total)
    assert score.value == pytest.approx(7 / 12, abs=1e-15)
    assert score.n == 2
    # R[1,1] = 2/4, R[2,2] = 1/2
    assert average_task_accuracy(correct, total) == Score(0.5, 2)


def test_no_test_samples_at_all_is_none_and_neither_zero_nor_nan() -> None:
    empty = np.zeros((3, 3), dtype=int)
    for metric in (average_accuracy, average_task_accuracy, last_accuracy):
        assert metric(empty, empty) == Score(None, 0)


def test_entries_after_the_current_task_are_ignored() -> None:
    correct, total = CORRECT.copy(), TOTAL.copy()
    upper = np.triu_indices(3, 1)
    correct[upper], total[upper] = 999, -5
    assert accuracy_after(correct, total, 1) == accuracy_after(CORRECT, TOTAL, 1)
    assert average_accuracy(correct, total) == average_accuracy(CORRECT, TOTAL)
    assert average_task_accuracy(correct, total) == average_task_accuracy(CORRECT, TOTAL)


def _random_counts(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    n_tasks = int(rng.integers(1, 9))
    total = rng.integers(0, 6, (n_tasks, n_tasks))
    return rng.integers(0, total + 1), total


def _mean(values: list[Fraction]) -> tuple[Fraction | None, int]:
    return (sum(values, Fraction(0)) / len(values) if values else None), len(values)


def _assert_same(score: Score, expected: tuple[Fraction | None, int]) -> None:
    value, n = expected
    assert score.n == n
    if value is None:
        assert score.value is None
    else:
        assert type(score.value) is float
        assert math.isclose(score.value, value, rel_tol=1e-12, abs_tol=1e-15)


@pytest.mark.parametrize("seed", range(60))
def test_against_a_literal_loop(seed: int) -> None:
    correct, total = _random_counts(seed)
    n_tasks = len(total)
    steps: list[Fraction] = []
    own: list[Fraction] = []
    for t in range(n_tasks):
        right = tested = 0
        for i in range(t + 1):
            right += int(correct[t, i])
            tested += int(total[t, i])
            cell = Fraction(int(correct[t, i]), int(total[t, i])) if total[t, i] else None
            _assert_same(task_accuracy(correct, total, t, i), (cell, int(total[t, i])))
            if i == t and cell is not None:
                own.append(cell)
        step = Fraction(right, tested) if tested else None
        _assert_same(accuracy_after(correct, total, t), (step, tested))
        if step is not None:
            steps.append(step)
    _assert_same(last_accuracy(correct, total), (step, tested))
    _assert_same(average_accuracy(correct, total), _mean(steps))
    _assert_same(average_task_accuracy(correct, total), _mean(own))


@pytest.mark.parametrize("seed", range(10))
def test_last_accuracy_does_not_depend_on_the_order_of_the_tasks(seed: int) -> None:
    correct, total = _random_counts(seed)
    order = np.random.default_rng(seed).permutation(len(total))
    correct_2, total_2 = correct.copy(), total.copy()
    correct_2[-1], total_2[-1] = correct[-1, order], total[-1, order]
    assert last_accuracy(correct_2, total_2) == last_accuracy(correct, total)


def test_small_unsigned_counts_do_not_overflow() -> None:
    correct = np.full((3, 3), 200, dtype=np.uint8)
    total = np.full((3, 3), 250, dtype=np.uint8)
    assert accuracy_after(correct, total, 2) == Score(600 / 750, 750)


def test_values_are_plain_python_numbers() -> None:
    score = last_accuracy(CORRECT, TOTAL)
    assert type(score.value) is float
    assert type(score.n) is int


@pytest.mark.parametrize(
    ("correct", "total", "message"),
    [
        ([1, 2], [[1]], r"correct has shape \(2,\)"),
        ([[1, 2]], [[1, 2]], r"correct has shape \(1, 2\).*square"),
        (np.zeros((0, 0), int), np.zeros((0, 0), int), r"correct has shape \(0, 0\).*T >= 1"),
        ([[1]], [[1, 0], [1, 1]], r"correct has shape \(1, 1\) and total has shape \(2, 2\)"),
        ([[0.5]], [[1]], "correct has dtype float64: pass integers"),
        ([[1]], [[True]], "total has dtype bool: pass integers"),
        ([[1, 0], [-3, 1]], [[1, 0], [1, 1]], r"correct\[1, 0\] = -3"),
        ([[0, 0], [0, 0]], [[1, 0], [1, -2]], r"total\[1, 1\] = -2"),
        ([[1, 0], [5, 1]], [[1, 0], [4, 1]], r"correct\[1, 0\] = 5 is more than total\[1, 0\] = 4"),
    ],
)
def test_bad_counts_are_named(correct: object, total: object, message: str) -> None:
    for metric in (average_accuracy, average_task_accuracy, last_accuracy):
        with pytest.raises(ValueError, match=message):
            metric(correct, total)


@pytest.mark.parametrize("t", [-1, 3])
def test_a_task_out_of_range_is_named(t: int) -> None:
    with pytest.raises(ValueError, match=f"t = {t}: pass a task index from 0 to 2"):
        accuracy_after(CORRECT, TOTAL, t)


def test_a_task_not_learned_yet_is_refused() -> None:
    with pytest.raises(ValueError, match="i = 2 is after t = 1"):
        task_accuracy(CORRECT, TOTAL, 1, 2)


@pytest.mark.parametrize(
    ("value", "n"), [(None, 3), (0.0, 0), (float("nan"), 3), (math.inf, 1), (0.5, -1)]
)
def test_a_score_can_not_hold_what_is_undefined(value: float | None, n: int) -> None:
    with pytest.raises(ValueError, match=r"None|not finite"):
        Score(value, n)
