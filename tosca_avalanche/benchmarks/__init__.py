"""Streams as plain Avalanche benchmarks, in the paper's protocol."""

from tosca_avalanche.benchmarks.class_incremental import (
    LabelledImages,
    class_incremental,
    class_order,
    task_sizes,
)
from tosca_avalanche.benchmarks.digits import digits
from tosca_avalanche.benchmarks.domains import domains
from tosca_avalanche.benchmarks.experience import classes_of
from tosca_avalanche.benchmarks.fashion_mnist import fashion_mnist
from tosca_avalanche.benchmarks.folder import folder
from tosca_avalanche.benchmarks.glyphs import glyphs
from tosca_avalanche.benchmarks.mixed import mixed_experience
from tosca_avalanche.benchmarks.paper import (
    cifar100,
    cub200,
    eurosat,
    imagenet_a,
    imagenet_r,
    omnibenchmark,
    vtab,
)
from tosca_avalanche.benchmarks.registry import find_stream, register_stream, stream_names

__all__ = [
    "LabelledImages",
    "cifar100",
    "class_incremental",
    "class_order",
    "classes_of",
    "cub200",
    "digits",
    "domains",
    "eurosat",
    "fashion_mnist",
    "find_stream",
    "folder",
    "glyphs",
    "imagenet_a",
    "imagenet_r",
    "mixed_experience",
    "omnibenchmark",
    "register_stream",
    "stream_names",
    "task_sizes",
    "vtab",
]
