"""Streams as plain Avalanche benchmarks, in the paper's protocol."""

from tosca_avalanche.benchmarks.class_incremental import (
    LabelledImages,
    class_incremental,
    class_order,
    task_sizes,
)
from tosca_avalanche.benchmarks.digits import digits
from tosca_avalanche.benchmarks.experience import classes_of
from tosca_avalanche.benchmarks.folder import folder
from tosca_avalanche.benchmarks.mixed import mixed_experience
from tosca_avalanche.benchmarks.registry import find_stream, register_stream, stream_names

__all__ = [
    "LabelledImages",
    "class_incremental",
    "class_order",
    "classes_of",
    "digits",
    "find_stream",
    "folder",
    "mixed_experience",
    "register_stream",
    "stream_names",
    "task_sizes",
]
