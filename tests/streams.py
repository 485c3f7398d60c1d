"""The benchmarks that every strategy must work on, in both families of Avalanche."""

from __future__ import annotations

from avalanche.benchmarks import (
    benchmark_from_datasets,
    class_incremental_benchmark,
    nc_benchmark,
    with_classes_timeline,
)
from avalanche.benchmarks.utils import as_classification_dataset

from tests.conftest import blobs


def classic(task_labels: bool = False, n_classes: int = 6, tasks: int = 3):
    """nc_benchmark: batches (x, y, t)."""
    return nc_benchmark(
        blobs(n_classes, 12, 1),
        blobs(n_classes, 5, 2),
        n_experiences=tasks,
        task_labels=task_labels,
        fixed_class_order=[3, 0, 5, 1, 4, 2][:n_classes],
        class_ids_from_zero_from_first_exp=True,
    )


def new_family():
    """class_incremental_benchmark: batches (x, y), no task labels."""
    sets = {"train": blobs(6, 12, 1), "test": blobs(6, 5, 2)}
    return class_incremental_benchmark(
        {k: as_classification_dataset(v) for k, v in sets.items()},
        class_order=[3, 0, 5, 1, 4, 2],
        num_experiences=3,
    )


def of_tasks(tasks, per_class: int = 8, timeline: bool = True, train=blobs, test=blobs):
    """One experience per list of labels: uneven sizes, odd labels, one class alone."""
    benchmark = benchmark_from_datasets(
        train=[
            as_classification_dataset(train(0, per_class, 1 + i, labels=t))
            for i, t in enumerate(tasks)
        ],
        test=[
            as_classification_dataset(test(0, 4, 100 + i, labels=t)) for i, t in enumerate(tasks)
        ],
    )
    return with_classes_timeline(benchmark) if timeline else benchmark


STREAMS = {
    "classic": classic,
    "classic with task labels": lambda: classic(task_labels=True),
    "new family": new_family,
    "uneven": lambda: of_tasks([[0], [1, 2, 3], [4, 5]]),
    "no class lists": lambda: of_tasks([[0, 1], [2, 3]], timeline=False),
    "odd labels": lambda: of_tasks([[17, 5], [853, 2]]),
    "one image a class": lambda: of_tasks([[0, 1], [2]], per_class=1),
    "classes again": lambda: of_tasks([[0, 1], [1, 2], [0]]),
}
