"""The share of zeros, counted by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tosca_avalanche.metrics import Score, sparsity


def test_by_hand_over_tensors_of_unlike_size() -> None:
    parameters = [torch.tensor([[0.0, 1.0], [-0.0, 1e-30]]), torch.tensor([0.0, -3.0, 1e-4, -1e-4])]
    assert sparsity(parameters) == Score(3 / 8, 8)  # 0, -0 and 0; not the mean of 2/4 and 1/4
    assert sparsity(parameters, threshold=1e-3) == Score(6 / 8, 8)


def test_the_threshold_itself_is_not_below_it() -> None:
    assert sparsity([torch.tensor([0.5, -0.5, 0.25])], threshold=0.5) == Score(1 / 3, 3)


def test_a_module_with_biases() -> None:
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.zero_()
    assert sparsity(layer.parameters()) == Score(3 / 15, 15)
    assert layer.weight.grad is None


def test_half_precision_compares_with_the_threshold_itself() -> None:
    # the bfloat16 next to 1e-3 is 0.00099945: below the threshold, though equal to its rounding
    value = torch.tensor([1e-3], dtype=torch.bfloat16)
    assert value.item() < 1e-3
    assert sparsity([value], threshold=1e-3) == Score(1.0, 1)


def test_no_entries_is_undefined() -> None:
    assert sparsity([]) == Score(None, 0)
    assert sparsity([torch.empty(0)]) == Score(None, 0)


def test_values_are_plain_python_numbers() -> None:
    score = sparsity([torch.zeros(2)])
    assert type(score.value) is float
    assert type(score.n) is int


@pytest.mark.parametrize("threshold", [-1e-3, math.nan, math.inf])
def test_a_bad_threshold_is_named(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold = "):
        sparsity([torch.zeros(1)], threshold)


def test_nan_is_refused_and_infinity_is_not_small() -> None:
    with pytest.raises(ValueError, match=r"parameter 1 of shape \(2,\) holds NaN"):
        sparsity([torch.zeros(1), torch.tensor([0.0, math.nan])])
    assert sparsity([torch.tensor([math.inf, 0.0])], 1e-3) == Score(1 / 2, 2)
