"""Both forms of forgetting and BWT against fractions by hand and a slow literal oracle."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tosca_avalanche.metrics import (
    Score,
    backward_transfer,
    forgetting_after_learning,
    forgetting_max,
)

METRICS = (forgetting_max, forgetting_after_learning, backward_transfer)

# task sizes 10, 4 and 2 (the last task is one class of two images)
TOTAL = np.array([[10, 0, 0], [10, 4, 0], [10, 4, 2]])
CORRECT = np.array([[8, 0, 0], [9, 2, 0], [6, 3, 1]])


def _assert_score(score: Score, value: float, n: int) -> None:
    assert score.value == pytest.approx(value, abs=1e-12)
    assert type(score.value) is float
    assert score.n == n
    assert type(score.n) is int


def test_by_hand_after_the_last_task() -> None:
    # task 0: best of 8/10, 9/10, 6/10 minus 6/10 = 3/10; task 1: best of 2/4, 3/4 minus 3/4 = 0
    _assert_score(forgetting_max(CORRECT, TOTAL), 3 / 20, 2)
    # task 0: 8/10 - 6/10 = 1/5; task 1: 2/4 - 3/4 = -1/4
    _assert_score(forgetting_after_learning(CORRECT, TOTAL), -1 / 40, 2)
    _assert_score(backward_transfer(CORRECT, TOTAL), 1 / 40, 2)


def test_by_hand_after_the_second_task() -> None:
    # task 0 alone: best of 8/10, 9/10 minus 9/10 = 0; 8/10 - 9/10 = -1/10
    _assert_score(forgetting_max(CORRECT, TOTAL, 1), 0.0, 1)
    _assert_score(forgetting_after_learning(CORRECT, TOTAL, 1), -1 / 10, 1)
    _assert_score(backward_transfer(CORRECT, TOTAL, t=1), 1 / 10, 1)


@pytest.mark.parametrize("metric", METRICS)
def test_undefined_after_the_first_task(metric: Callable[..., Score]) -> None:
    assert metric(CORRECT, TOTAL, 0) == Score(None, 0)
    assert metric([[3]], [[4]]) == Score(None, 0)


@pytest.mark.parametrize("metric", METRICS)
def test_the_last_task_does_not_count_for_itself(metric: Callable[..., Score]) -> None:
    correct = CORRECT.copy()
    correct[2, 2] = 0
    assert metric(correct, TOTAL) == metric(CORRECT, TOTAL)


def test_a_last_task_of_one_class_keeps_its_step() -> None:
    # dropping the last step would give the values after task 1
    total = np.array([[5, 0, 0], [5, 5, 0], [5, 5, 1]])
    correct = np.array([[5, 0, 0], [4, 5, 0], [1, 2, 1]])
    # (5/5 - 1/5 + 5/5 - 2/5) / 2 = 7/10
    _assert_score(forgetting_max(correct, total), 7 / 10, 2)
    _assert_score(backward_transfer(correct, total), -7 / 10, 2)


def test_an_earlier_task_of_one_image_weighs_as_much_as_the_others() -> None:
    total = np.array([[100, 0, 0], [100, 1, 0], [100, 1, 100]])
    correct = np.array([[100, 0, 0], [100, 1, 0], [100, 0, 50]])
    _assert_score(forgetting_max(correct, total), 1 / 2, 2)  # (0 + 1) / 2


@pytest.mark.parametrize("metric", METRICS)
def test_a_task_without_test_samples_is_left_out(metric: Callable[..., Score]) -> None:
    correct, total = CORRECT.copy(), TOTAL.copy()
    correct[:, 0] = total[:, 0] = 0
    score = metric(correct, total)
    sign = {forgetting_max: 0, forgetting_after_learning: -1, backward_transfer: 1}[metric]
    _assert_score(score, sign / 4, 1)  # task 1 alone: 2/4 then 3/4
    correct[:, 1] = total[:, 1] = 0
    assert metric(correct, total) == Score(None, 0)


def test_a_task_tested_at_the_end_only_has_no_forgetting() -> None:
    total = np.array([[0, 0, 0], [0, 4, 0], [9, 4, 4]])
    correct = np.array([[0, 0, 0], [0, 4, 0], [9, 1, 4]])
    for metric in (forgetting_max, forgetting_after_learning):
        _assert_score(metric(correct, total), 3 / 4, 1)  # task 1 alone: 4/4 - 1/4


@pytest.mark.parametrize("metric", METRICS)
def test_entries_after_the_current_task_are_ignored(metric: Callable[..., Score]) -> None:
    correct, total = CORRECT.copy(), TOTAL.copy()
    upper = np.triu_indices(3, 1)
    correct[upper], total[upper] = 999, -5
    assert metric(correct, total) == metric(CORRECT, TOTAL)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(60))
def test_against_a_literal_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_tasks = int(rng.integers(1, 9))
    total = rng.integers(0, 5, (n_tasks, n_tasks))
    correct = rng.integers(0, total + 1)

    def accuracy(s: int, i: int) -> Fraction | None:
        return Fraction(int(correct[s, i]), int(total[s, i])) if total[s, i] else None

    for t in range(n_tasks):
        lost: list[Fraction] = []
        since: list[Fraction] = []
        for i in range(t):
            now = accuracy(t, i)
            if now is None:
                continue
            earlier = [a for a in (accuracy(s, i) for s in range(i, t)) if a is not None]
            if earlier:
                lost.append(max([*earlier, now]) - now)
            first = accuracy(i, i)
            if first is not None:
                since.append(first - now)
        for metric, values, sign in (
            (forgetting_max, lost, 1),
            (forgetting_after_learning, since, 1),
            (backward_transfer, since, -1),
        ):
            score = metric(correct, total, t)
            assert score.n == len(values)
            if values:
                assert score.value is not None
                expected = float(sign * sum(values, Fraction(0)) / len(values))
                assert math.isclose(score.value, expected, rel_tol=1e-9, abs_tol=1e-12)
            else:
                assert score.value is None


def test_many_tasks_stay_in_their_order() -> None:
    # 120 tasks: task i is right on 120 - (t - i) of 120 images, so each lost t - i of them
    n_tasks = 120
    t, i = np.indices((n_tasks, n_tasks))
    correct, total = n_tasks - (t - i), np.full((n_tasks, n_tasks), n_tasks)
    # the mean over i < 119 of (119 - i) / 120 = (1 + ... + 119) / 119 / 120 = 60 / 120
    _assert_score(forgetting_max(correct, total), 1 / 2, 119)
    _assert_score(backward_transfer(correct, total), -1 / 2, 119)


def test_unsigned_counts_can_rise() -> None:
    total = np.full((2, 2), 10, dtype=np.uint8)
    correct = np.array([[2, 0], [9, 9]], dtype=np.uint8)
    _assert_score(backward_transfer(correct, total), 7 / 10, 1)


@pytest.mark.parametrize("metric", METRICS)
def test_bad_input_is_named(metric: Callable[..., Score]) -> None:
    with pytest.raises(ValueError, match=r"correct\[2, 1\] = 5 is more than total\[2, 1\] = 4"):
        metric([[8, 0, 0], [9, 2, 0], [6, 5, 1]], TOTAL)
    with pytest.raises(ValueError, match="t = 3: pass a task index from 0 to 2"):
        metric(CORRECT, TOTAL, 3)
