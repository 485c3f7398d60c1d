"""Calibration by hand, and against the equation written as loops."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tosca_avalanche.metrics import Score, expected_calibration_error, reliability_table


def test_by_hand() -> None:
    """Five images, bins of a fifth: (0.2, 0.4] has two, (0.8, 1] has three."""
    sure = [0.25, 0.375, 1.0, 0.875, 0.875]
    right = [True, False, True, True, False]
    table = reliability_table(sure, right, bins=5)
    np.testing.assert_array_equal(
        table, [[0, 0, 0], [2, 1, 0.625], [0, 0, 0], [0, 0, 0], [3, 2, 2.75]]
    )
    # 2/5 |1/2 - 0.3125| + 3/5 |2/3 - 0.91666| = (0.375 + 0.75) / 5
    assert expected_calibration_error(table) == Score(0.225, 5)


def test_edges_belong_to_the_bin_below() -> None:
    table = reliability_table([0.0, 0.1, 0.2, 0.3, 0.7, 1.0], [True] * 6, bins=10)
    assert table[:, 0].tolist() == [2, 1, 1, 0, 0, 0, 1, 0, 0, 1]


def literal_ece(sure: list[float], right: list[bool], bins: int) -> float:
    """Guo et al., eq. 3, in exact arithmetic: sum over bins of |B| / n |acc(B) - conf(B)|."""
    total = Fraction(0)
    for m in range(1, bins + 1):
        low, high = Fraction(m - 1, bins), Fraction(m, bins)
        members = [
            i for i, c in enumerate(sure) if low < Fraction(c) <= high or (m == 1 and c == 0)
        ]
        if members:
            accuracy = Fraction(sum(right[i] for i in members), len(members))
            confidence = sum(Fraction(sure[i]) for i in members) / len(members)
            total += Fraction(len(members), len(sure)) * abs(accuracy - confidence)
    return float(total)


@pytest.mark.parametrize("seed", range(10))
def test_against_the_equation_and_in_parts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, bins = int(rng.integers(1, 80)), int(rng.integers(1, 20))
    sure, right = rng.random(n), rng.random(n) < 0.6
    table = reliability_table(sure, right, bins)
    found = expected_calibration_error(table)
    assert found.n == n
    assert found.value == pytest.approx(literal_ece(sure.tolist(), right.tolist(), bins), abs=1e-12)
    parts = reliability_table(sure[:3], right[:3], bins) + reliability_table(
        sure[3:], right[3:], bins
    )
    np.testing.assert_allclose(parts, table, atol=1e-12)


def test_extremes() -> None:
    assert expected_calibration_error(reliability_table([], [])) == Score(None, 0)
    assert expected_calibration_error(reliability_table([1.0] * 9, [True] * 9)).value == 0
    assert expected_calibration_error(reliability_table([1.0] * 9, [False] * 9)).value == 1
    tiny = np.nextafter(1.0, 0)
    assert (
        expected_calibration_error(reliability_table([tiny] * 10**5, [True] * 10**5)).value < 1e-9
    )


@pytest.mark.parametrize(
    ("sure", "right", "bins", "message"),
    [
        ([0.5, 1.5], [True, True], 15, r"confidence\[1\] = 1.5"),
        ([float("nan")], [True], 15, "nan"),
        ([0.5], [True, False], 15, r"shape \(2,\)"),
        ([0.5], [1], 15, "dtype int64"),
        ([0.5], [True], 0, "bins = 0"),
    ],
)
def test_bad_inputs_are_named(sure: list, right: list, bins: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reliability_table(sure, right, bins)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([1, 2, 3], r"shape \(3,\)"),
        ([[1, 2, 0.5]], r"table\[0\] = \[1.0, 2.0, 0.5\]"),
        ([[2, 1, -0.5]], r"table\[0\]"),
    ],
)
def test_bad_tables_are_named(table: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expected_calibration_error(table)
