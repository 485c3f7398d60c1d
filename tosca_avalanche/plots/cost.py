"""What accuracy costs: learned numbers, training time, answering time."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tosca_avalanche.plots.series import (
    STARRED,
    Line,
    check_columns,
    line_names,
    line_places,
    lines_of,
)
from tosca_avalanche.plots.style import (
    draw_dots,
    empty_figure,
    figure_path,
    legend_layout,
    light_grid,
    save,
    save_table,
    set_wide_scale,
    wrapped,
)

COSTS = {
    "params_total": "learned numbers beside the backbone",
    "train_s": "training (s, all tasks)",
    "eval_ms_per_image": "evaluation (ms/image)",
}


def plot_cost(summary: pd.DataFrame, path: str | Path, starred: Collection[str] = ()) -> Path:
    """Draw A_last over each cost, one point per (method, protocol); write PATH and a CSV.

    Means over seeds, with bars of ± 1 standard deviation (ddof 1) where there are two or more.
    A cost that spans a factor of ten has a logarithmic scale. A point without a cost is left out.

    :param summary: of one stream, as ``records.summarise`` makes it.
    :param starred: methods that get a star: their settings are not their defaults.
    :param path: where the figure goes, .png or .svg; folders are made.
    :return: the path of the figure. The CSV has the columns method, protocol, cost, cost_mean,
        cost_std_ddof1, A_last_percent, A_last_std_ddof1_percent and n_seeds.
    :raises ValueError: a missing column, several streams, or no method with accuracy and a cost.
    """
    path = figure_path(path)
    check_columns(summary, ["stream", "method", "protocol", "metric", "mean", "std", "n"])
    streams = sorted(map(str, summary["stream"].unique()))
    if len(streams) > 1:
        raise ValueError(f"the summary mixes the streams {', '.join(streams)}: pass one stream")
    key = ["method", "protocol"]
    last = summary[(summary["metric"] == "A_last") & summary["mean"].notna()]
    costs = summary[summary["metric"].isin(COSTS) & summary["mean"].notna()]
    both = last.merge(costs, on=key, suffixes=("", "_cost"))
    if both.empty:
        raise ValueError("no method has both an accuracy A_last and a cost: nothing to draw")
    table = pd.DataFrame(
        {
            "method": both["method"],
            "protocol": both["protocol"],
            "cost": both["metric_cost"],
            "cost_mean": both["mean_cost"],
            "cost_std_ddof1": both["std_cost"],
            "A_last_percent": 100 * both["mean"],
            "A_last_std_ddof1_percent": 100 * both["std"],
            "n_seeds": both["n"],
        }
    )
    save_table(table, path)
    return save(_draw(table, streams[0], lines_of(last), starred), path)


def _draw(table: pd.DataFrame, stream: str, names: list[Line], starred: Collection[str]) -> Figure:
    shown = [cost for cost in COSTS if cost in set(table["cost"])]
    texts, title = line_names(names, stream, starred)
    labels, columns, lines = legend_layout(texts)
    figure = empty_figure(7.2, 2.7 * len(shown) + 0.5 + 0.21 * lines)
    panels = figure.subplots(len(shown), 1, sharey=True, squeeze=False)[:, 0]
    for axes, cost in zip(panels, shown, strict=True):
        _draw_cost(axes, table[table["cost"] == cost], names, labels)
        axes.set_xlabel(COSTS[cost])
        axes.set_ylabel("A_last (%)")
    panels[0].set_title(wrapped(title, 70))
    handles, texts = panels[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, fontsize=9,
                  title_fontsize=9, frameon=False, title=STARRED if starred else None)  # fmt: skip
    return figure


def _draw_cost(axes: Axes, own: pd.DataFrame, names: list[Line], labels: list[str]) -> None:
    places = line_places(names)
    for name, label in zip(names, labels, strict=True):
        point = own[(own["method"] == name[0]) & (own["protocol"] == name[1])]
        bars = {
            "xerr": _bar(point["cost_std_ddof1"]),
            "yerr": _bar(point["A_last_std_ddof1_percent"]),
        }
        x, y = point["cost_mean"], point["A_last_percent"]
        draw_dots(axes, x, y, places[name], label=label, **bars)
    set_wide_scale(axes, own["cost_mean"], 10)
    axes.margins(y=0.15)
    light_grid(axes)


def _bar(std: pd.Series) -> pd.Series | None:
    return None if std.isna().all() else std
