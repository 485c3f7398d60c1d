"""What a run leaves behind: its folder, its tidy rows, its environment, and means over runs."""

from tosca_avalanche.records.environment import environment
from tosca_avalanche.records.rows import (
    COLUMNS,
    accuracy_rows,
    calibration_rows,
    row,
    selection_rows,
)
from tosca_avalanche.records.run_folder import (
    RunFolder,
    differences,
    has_table,
    read_metrics,
    read_table,
)
from tosca_avalanche.records.summary import (
    latex_table,
    markdown_table,
    mean_text,
    over_seeds,
    summarise,
    table,
    table_cells,
)

__all__ = [
    "COLUMNS",
    "RunFolder",
    "accuracy_rows",
    "calibration_rows",
    "differences",
    "environment",
    "has_table",
    "latex_table",
    "markdown_table",
    "mean_text",
    "over_seeds",
    "read_metrics",
    "read_table",
    "row",
    "selection_rows",
    "summarise",
    "table",
    "table_cells",
]
