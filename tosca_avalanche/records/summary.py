"""From the metrics of single runs to means over seeds."""

from __future__ import annotations

import pandas as pd

from tosca_avalanche.errors import RecordError

HEADLINE = (
    "A_bar",
    "A_last",
    "forgetting_max",
    "avg_task_acc",
    "selection_acc",
    "ece",
    "params_total",
    "passes_per_image",
    "train_s",
    "eval_ms_per_image",
)
# the same for every seed: no spread to print
EXACT = ("params_total", "passes_per_image")

# column title, factor and digits of the metrics that the tables show
_TABLE = {
    "A_bar": ("A-bar (%)", 100, 1),
    "A_last": ("A_last (%)", 100, 1),
    "forgetting_max": ("forgetting, max form (points)", 100, 1),
    "selection_acc": ("module selection (%)", 100, 1),
    "params_total": ("learned numbers", 1, 0),
    "passes_per_image": ("passes of a new image", 1, 0),
    "train_s": ("train (s)", 1, 1),
    "eval_ms_per_image": ("eval (ms/image)", 1, 2),
}
_LATEX = {
    **{letter: rf"\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "–": "--",
    "≥": r"$\geq$",
}


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per (stream, method, protocol, metric): mean, std (ddof 1), n seeds.

    Takes each metric's value after the last task (``train_s`` is summed over tasks).
    With one seed std is blank. A metric that is undefined in some runs of a group is an
    error: its mean would hide that.

    :param frame: metrics of several runs, concatenated.
    :raises RecordError: a seed twice in a group, groups of unequal length, or a metric
        defined for some seeds only.
    """
    last = frame[frame["after_task"] == frame.groupby("run_id")["after_task"].transform("max")]
    value = last[last["metric"].isin(HEADLINE)]
    seconds = (
        frame[frame["metric"] == "train_s"]
        .groupby(["run_id", "method", "stream", "seed", "protocol", "metric"], as_index=False)
        .agg(value=("value", "sum"))
    )
    out = over_seeds(pd.concat([value[value["metric"] != "train_s"], seconds]))
    order = {metric: i for i, metric in enumerate(HEADLINE)}
    return out.sort_values(
        ["stream", "protocol", "method", "metric"],
        key=lambda c: c.map(order) if c.name == "metric" else c,
    ).reset_index(drop=True)


def over_seeds(value: pd.DataFrame) -> pd.DataFrame:
    """Return mean, std (ddof 1) and n of each (stream, method, protocol, metric) over its seeds.

    :param value: one row per seed, with stream, method, protocol, seed, metric and value.
    :raises RecordError: a seed twice in a group, or a metric defined for some seeds only.
    """
    keys = ["stream", "method", "protocol", "metric"]
    twice = value[value.duplicated([*keys, "seed"], keep=False)]
    if len(twice):
        one = twice.iloc[0]
        raise RecordError(
            f"seed {one['seed']} of {one['method']} ({one['protocol']}) is there more than once: "
            f"runs with different class orders or settings can't be averaged together"
        )
    mixed = value.groupby(keys)["value"].agg(lambda v: 0 < v.isna().sum() < len(v))
    if mixed.any():
        raise RecordError(f"{mixed[mixed].index[0]} is undefined for some seeds only")
    grouped = value.groupby(keys)["value"].agg(["mean", "std", "count"]).reset_index()
    seeds = value.groupby(keys[:3])["seed"].nunique().rename("seeds").reset_index()
    return grouped.merge(seeds, on=keys[:3]).rename(columns={"count": "n"})


def table_cells(summary: pd.DataFrame, protocol: str) -> list[list[str]]:
    """Return the head and the rows of one protocol's table; protocols never share a column."""
    part = summary[summary["protocol"] == protocol]
    out = [["method", "seeds", *(head for head, *_ in _TABLE.values())]]
    for method, rows in part.groupby("method", sort=False):
        by = rows.set_index("metric")
        cells = [
            _cell(by, metric, factor, digits) for metric, (_, factor, digits) in _TABLE.items()
        ]
        out.append([str(method), str(int(rows["seeds"].iloc[0])), *cells])
    return out


def table(summary: pd.DataFrame, protocol: str) -> str:
    """Return a text table (Markdown) of one protocol."""
    return markdown_table(table_cells(summary, protocol))


def markdown_table(cells: list[list[str]]) -> str:
    """Return a head and rows of cells as a Markdown table."""
    head, *rows = cells
    return "\n".join(
        [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        + [f"| {' | '.join(row)} |" for row in rows]
    )


def latex_table(summary: pd.DataFrame, protocol: str, caption: str) -> str:
    """Return a LaTeX table of one protocol; it needs no package."""
    lines = [" & ".join(map(_latex, row)) + r" \\" for row in table_cells(summary, protocol)]
    columns = "l" + "r" * lines[0].count(" & ")
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_latex(caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\hline",
            lines[0],
            r"\hline",
            *lines[1:],
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _cell(by: pd.DataFrame, metric: str, factor: float, digits: int) -> str:
    if metric not in by.index or pd.isna(by.loc[metric, "mean"]):
        return "–"
    mean, std = by.loc[metric, "mean"] * factor, by.loc[metric, "std"] * factor
    return mean_text(mean, None if metric in EXACT else std, digits)


def mean_text(mean: float, std: float | None, digits: int) -> str:
    """Return "mean ± std", or the mean alone where there is no spread to print."""
    text = f"{mean:,.{digits}f}"
    return text if pd.isna(std) else f"{text} ± {std:,.{digits}f}"
