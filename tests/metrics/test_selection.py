"""The table of chosen modules, counted by hand and by a loop."""

from __future__ import annotations

import numpy as np
import pytest

from tosca_avalanche.metrics import Score, selection_accuracy, selection_table


def test_table_by_hand() -> None:
    table = selection_table([0, 0, 0, 1, 1, 2], [0, 0, 2, 1, 0, 1], n_tasks=3, n_modules=3)
    np.testing.assert_array_equal(table, [[2, 0, 1], [1, 1, 0], [0, 1, 0]])
    assert table.dtype == np.int64
    assert selection_accuracy(table) == Score(3 / 6, 6)


@pytest.mark.parametrize("seed", range(20))
def test_against_a_loop_and_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_tasks, n_modules = (int(n) for n in rng.integers(1, 7, 2))
    task = rng.integers(0, n_tasks, 50)
    module = rng.integers(0, n_modules, 50)
    expected = [[0] * n_modules for _ in range(n_tasks)]
    right = 0
    for t, m in zip(task, module, strict=True):
        expected[t][m] += 1
        right += int(t == m)
    table = selection_table(task, module, n_tasks, n_modules)
    np.testing.assert_array_equal(table, expected)
    assert selection_accuracy(table) == Score(right / 50, 50)
    order = rng.permutation(50)
    np.testing.assert_array_equal(
        selection_table(task[order], module[order], n_tasks, n_modules), table
    )


def test_images_of_a_task_without_a_module_count_as_wrong() -> None:
    table = selection_table([0, 1, 2, 2], [0, 1, 0, 1], n_tasks=3, n_modules=2)
    assert table.shape == (3, 2)
    assert selection_accuracy(table) == Score(2 / 4, 4)


def test_no_images_is_undefined() -> None:
    table = selection_table([], [], n_tasks=2, n_modules=2)
    np.testing.assert_array_equal(table, np.zeros((2, 2)))
    assert selection_accuracy(table) == Score(None, 0)


@pytest.mark.parametrize(
    ("task", "module", "sizes", "message"),
    [
        ([0, 1], [0], (2, 2), "task has 2 values and module has 1"),
        ([0, 2], [0, 0], (2, 2), r"task\[1\] = 2: pass values from 0 to 1"),
        ([0, 1], [-1, 0], (2, 2), r"module\[0\] = -1: pass values from 0 to 1"),
        ([0.0], [0], (1, 1), "task has dtype float64"),
        ([[0]], [0], (1, 1), r"task has shape \(1, 1\)"),
        ([], [], (1, 0), "n_modules = 0"),
    ],
)
def test_bad_input_is_named(
    task: object, module: object, sizes: tuple[int, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        selection_table(task, module, *sizes)


def test_a_bad_table_is_named() -> None:
    with pytest.raises(ValueError, match=r"table\[0, 1\] = -1"):
        selection_accuracy([[1, -1]])
    with pytest.raises(ValueError, match="table has dtype float64"):
        selection_accuracy([[0.5]])
