"""Tidy rows of a hand-computed case."""

import numpy as np

from tosca_avalanche.records import accuracy_rows, calibration_rows, selection_rows

CORRECT = np.array([[8, 0, 0], [4, 3, 0], [2, 2, 1]])
TOTAL = np.array([[10, 0, 0], [10, 4, 0], [10, 4, 2]])


def value(rows, metric, after=None, on=None):
    hits = [
        r
        for r in rows
        if r["metric"] == metric
        and (after is None or r["after_task"] == after)
        and (on is None or r["eval_task"] == on)
    ]
    assert len(hits) == 1
    return hits[0]["value"], hits[0]["n"]


def test_every_metric_of_the_case():
    rows = accuracy_rows(CORRECT, TOTAL)
    assert value(rows, "acc", 2, 1) == (2 / 4, 4)
    assert value(rows, "A_t", 1) == (7 / 14, 14)
    assert value(rows, "A_last") == (5 / 16, 16)
    assert value(rows, "A_bar") == ((8 / 10 + 7 / 14 + 5 / 16) / 3, 3)
    assert value(rows, "avg_task_acc") == ((8 / 10 + 3 / 4 + 1 / 2) / 3, 3)
    forgetting, n = value(rows, "forgetting_max", 2)
    assert n == 2 and np.isclose(forgetting, ((8 - 2) / 10 + (3 - 2) / 4) / 2)
    assert np.isclose(value(rows, "bwt", 2)[0], -forgetting)
    assert value(rows, "forgetting_max", 0) == (None, 0)
    assert len([r for r in rows if r["metric"] == "acc"]) == 6


def test_an_empty_test_task_is_undefined_and_not_zero():
    total = TOTAL.copy()
    total[:, 1] = 0
    correct = CORRECT.copy()
    correct[:, 1] = 0
    rows = accuracy_rows(correct, total)
    assert value(rows, "acc", 2, 1) == (None, 0)
    assert value(rows, "A_last") == (3 / 12, 12)


def test_selection():
    table = np.array([[3, 1], [2, 4]])
    rows = selection_rows({1: table})
    assert value(rows, "selection_acc", 1) == (7 / 10, 10)


def test_calibration_rows():
    tables = {0: np.zeros((2, 3)), 1: np.array([[2, 1, 0.5], [2, 2, 2.0]])}
    first, second = calibration_rows(tables)
    assert (first["metric"], first["value"], first["n"]) == ("ece", None, 0)
    assert (second["after_task"], second["value"], second["n"]) == (1, 0.125, 4)
