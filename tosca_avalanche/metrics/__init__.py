"""Metrics of class-incremental learning: pure functions from counts and tensors to a Score."""

from __future__ import annotations

from tosca_avalanche.metrics.accuracy import (
    accuracy_after,
    average_accuracy,
    average_task_accuracy,
    last_accuracy,
    task_accuracy,
)
from tosca_avalanche.metrics.calibration import expected_calibration_error, reliability_table
from tosca_avalanche.metrics.cost import count_parameters, count_trainable
from tosca_avalanche.metrics.forgetting import (
    backward_transfer,
    forgetting_after_learning,
    forgetting_max,
)
from tosca_avalanche.metrics.score import Score
from tosca_avalanche.metrics.selection import selection_accuracy, selection_table
from tosca_avalanche.metrics.sparsity import sparsity

__all__ = [
    "Score",
    "accuracy_after",
    "average_accuracy",
    "average_task_accuracy",
    "backward_transfer",
    "count_parameters",
    "count_trainable",
    "expected_calibration_error",
    "forgetting_after_learning",
    "forgetting_max",
    "last_accuracy",
    "reliability_table",
    "selection_accuracy",
    "selection_table",
    "sparsity",
    "task_accuracy",
]
