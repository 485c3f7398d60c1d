"""What an ablation reads from a finished run, and how its table prints it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from experiments.collect import Finished


@dataclass(frozen=True)
class Measure:
    """One column of a table.

    :param title: its head, with the unit; also the axis of its panel in the figure.
    :param value: reads it from a run; None where it is undefined.
    :param factor: what the printed value is multiplied with.
    :param exact: the same for every seed: no spread to print.
    """

    title: str
    value: Callable[[Finished], float | None] = lambda run: None
    factor: float = 1
    digits: int = 1
    exact: bool = False


def rows_of(run: Finished, metric: str) -> pd.DataFrame:
    """Return the rows of a metric that are defined, by task."""
    rows = run.frame[(run.frame["metric"] == metric) & (run.frame["n"] > 0)]
    return rows.sort_values("after_task")


def last(metric: str) -> Callable[[Finished], float | None]:
    """Read a metric after the last task."""

    def value(run: Finished) -> float | None:
        rows = rows_of(run, metric)
        rows = rows[rows["after_task"] == run.frame["after_task"].max()]
        return None if rows.empty else float(rows["value"].iloc[0])

    return value


def mean_over_tasks(metric: str) -> Callable[[Finished], float | None]:
    """Read the mean over tasks of a metric that is taken after each."""

    def value(run: Finished) -> float | None:
        rows = rows_of(run, metric)
        return None if rows.empty else float(rows["value"].mean())

    return value


def module_numbers(run: Finished) -> float | None:
    """Return the numbers of one module, all of which its sparsity counts."""
    rows = rows_of(run, "sparsity_zero")
    return None if rows.empty else float(rows["n"].iloc[-1])


def kept(run: Finished) -> float | None:
    """Return the mean accuracy on each task at the end, over the mean right after learning it."""
    acc = rows_of(run, "acc")
    learned = acc[acc["after_task"] == acc["eval_task"]]["value"].mean()
    final = acc[acc["after_task"] == run.frame["after_task"].max()]["value"].mean()
    return float(final / learned) if learned > 0 else None


def total_seconds(run: Finished) -> float:
    """Return the seconds of training and of all tests together."""
    return float(sum(map(sum, run.record["timings"].values())))


def images_passed(run: Finished) -> float:
    """Return the images passed through a transformer, repeated ones counted again."""
    return float(run.record["images_passed"] + run.record["images_trained"])


def epochs(run: Finished) -> float | None:
    """Return the epochs of training, for methods that have any."""
    settings = run.record["configuration"]["method"]
    found = settings.get("train_epochs", settings.get("first_epochs"))
    return None if found is None else float(found)


def seconds(key: str) -> Callable[[Finished], float | None]:
    """Read one kind of seconds, summed over tasks."""
    return lambda run: float(sum(run.record["timings"][key]))


MEASURES = {
    "A_bar": Measure("A-bar (%)", last("A_bar"), 100),
    "A_last": Measure("A_last (%)", last("A_last"), 100),
    "selection_acc": Measure("module selection (%)", last("selection_acc"), 100),
    "avg_task_acc": Measure("average task accuracy (%)", last("avg_task_acc"), 100),
    "kept": Measure("kept of it after the last task (%)", kept, 100),
    "sparsity_zero": Measure("exact zeros (%)", mean_over_tasks("sparsity_zero"), 100, 2),
    "sparsity_1e-3": Measure("magnitude below 1e-3 (%)", mean_over_tasks("sparsity_1e-3"), 100, 2),
    "module_numbers": Measure("parameters of a task's module", module_numbers, 1, 0, True),
    "params_total": Measure("learned numbers", last("params_total"), 1, 0, True),
    "params_last_task": Measure(
        "added by the last task", lambda run: run.record["parameters"]["per_task"][-1], 1, 0, True
    ),
    "params_trainable": Measure(
        "trained in the last task", last("params_trainable"), 1, 0, True
    ),
    "epochs": Measure("epochs a task", epochs, 1, 0, True),
    "train_s": Measure("train (s)", seconds("train_s")),
    "eval_ms_per_image": Measure("eval (ms/image)", last("eval_ms_per_image"), 1, 2),
    "total_s": Measure("train and all tests (s)", total_seconds),
    "passes_per_image": Measure("passes of a new image", last("passes_per_image"), 1, 0, True),
    "images_passed": Measure("images passed in all", images_passed, 1, 0),
}  # fmt: skip
