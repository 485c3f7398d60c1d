"""What a run leaves behind: its folder, its tidy rows, its environment, and means over runs."""

from tosca_avalanche.records.environment import environment
from tosca_avalanche.records.rows import (
    COLUMNS,
    accuracy_rows,
    calibration_rows,
    row,
    selection_rows,
)
from tosca_avalanche.records.run_folder import RunFolder, read_metrics
from tosca_avalanche.records.summary import summarise, table

__all__ = [
    "COLUMNS",
    "RunFolder",
    "accuracy_rows",
    "calibration_rows",
    "environment",
    "read_metrics",
    "row",
    "selection_rows",
    "summarise",
    "table",
]
