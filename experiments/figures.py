"""The figures of finished runs: those of a stream, and those of one method on it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pandas as pd

from tosca_avalanche.metrics import expected_calibration_error
from tosca_avalanche.plots import (
    plot_accuracy,
    plot_cost,
    plot_forgetting,
    plot_heatmap,
    plot_reliability,
    plot_selection,
)
from tosca_avalanche.records import has_table, read_table

DEFAULT_PROTOCOL = "per-image"
_INT = "int64"
_BINS = {"images": _INT, "right": _INT, "sum_of_confidence": "float64"}
TABLES: dict[str, dict[str, str | None]] = {
    "selection": dict.fromkeys(("after_task", "task", "module", "count"), _INT),
    "prompts": dict.fromkeys(("after_task", "task", "prompt", "count"), _INT),
    "reliability": {"after_task": _INT, "bin": _INT, **_BINS},
}


def stream_figures(
    frame: pd.DataFrame,
    summary: pd.DataFrame,
    out: Path,
    kind: str = "png",
    starred: Collection[str] = (),
) -> list[Path]:
    """Draw accuracy, forgetting and cost of all methods on a stream; return the files.

    Of several protocols these show the default one; a figure of their own has the methods that
    were run under more than one.

    :param frame: metrics of the runs; ``summary`` their means, see ``records.summarise``.
    :param kind: png or svg.
    :param starred: methods whose settings are not their defaults.
    """
    main, means = frame, summary
    if DEFAULT_PROTOCOL in set(frame["protocol"]):
        main = frame[frame["protocol"] == DEFAULT_PROTOCOL]
        means = summary[summary["protocol"] == DEFAULT_PROTOCOL]
    figures = [plot_accuracy(main, out / f"accuracy.{kind}", starred)]
    if main["after_task"].max() > 0:
        figures.append(plot_forgetting(main, out / f"forgetting.{kind}", starred))
    lines = main[["method", "protocol"]].drop_duplicates()
    ordered = lines.merge(means, on=["method", "protocol"])
    figures.append(plot_cost(ordered, out / f"cost.{kind}", starred))
    several = frame.groupby("method")["protocol"].transform("nunique") > 1
    if several.any():
        figures.append(plot_accuracy(frame[several], out / f"protocols.{kind}"))
    return figures


def method_figures(
    frame: pd.DataFrame, folders: list[Path], out: Path, kind: str = "png"
) -> list[Path]:
    """Draw what there is of one method under one protocol; return the files.

    The heat map of accuracies, which modules or prompts were chosen, and the reliability
    diagram, the last ones after the last task and over all seeds together.

    :param frame: metrics of its runs; ``folders`` their folders.
    :raises RecordError: a table is damaged, or lost.
    """
    name = f"{frame['method'].iloc[0]} ({frame['protocol'].iloc[0]})"
    figures = [plot_heatmap(frame, out / f"heatmap.{kind}")]
    for what, stem in (("module", "selection"), ("prompt", "prompts")):
        if tables := _last_tables(folders, stem):
            wide = pd.concat(tables).pivot_table(
                index="task", columns=what, values="count", aggfunc="sum"
            )
            title = f"{name}, after the last task, {_seeds(tables)}"
            counts = wide.to_numpy().astype(int)
            figures.append(plot_selection(counts, out / f"{stem}.{kind}", title, what))
    if tables := _last_tables(folders, "reliability"):
        bins = pd.concat(tables).groupby("bin")[[*_BINS]].sum().to_numpy()
        ece = expected_calibration_error(bins)
        assert ece.value is not None  # a run without a test image has no such table
        title = (
            f"{name}, after the last task, {_seeds(tables)}\n"
            f"ECE {100 * ece.value:.1f} points, {ece.n:,} images"
        )
        figures.append(plot_reliability(bins, out / f"reliability.{kind}", title))
    return figures


def _last_tables(folders: list[Path], stem: str) -> list[pd.DataFrame]:
    paths = [path for d in folders if has_table(path := d / f"{stem}.csv")]
    tables = [read_table(path, TABLES[stem]) for path in paths]
    return [t[t["after_task"] == t["after_task"].max()] for t in tables]


def _seeds(runs: list[pd.DataFrame]) -> str:
    return f"{len(runs)} seed{'s' * (len(runs) > 1)}"
