"""From the tidy frame of results to the numbers that a figure draws.

The frame has one row per value, with the columns run_id, method, stream, seed, protocol,
after_task, eval_task, metric, value and n. Rows that can't stand in one mean (two streams, two
runs of one seed, a seed that stopped early) are refused rather than averaged.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import pandas as pd

Line = tuple[str, str]  # method, protocol
STARRED = "* settings unlike the method's defaults"
# their places are their colours, in every figure; the colours of the first eight come again, for
# methods that lie far from those in most figures
METHODS = (
    "tosca",
    "tosca_routed",
    "slda",
    "ranpac",
    "joint",
    "simplecil",
    "mos",
    "ease",
    "finetune",
    "l2p",
    "dualprompt",
    "codaprompt",
    "aper",
    "joint_finetune",
)
COLUMNS = ("method", "stream", "seed", "protocol", "after_task", "metric", "value")


def metric_rows(frame: pd.DataFrame, metric: str, lowest: float = 0.0) -> pd.DataFrame:
    """Return the rows of ``metric``, with after_task as int and value as a float in percent.

    A value None or NaN is undefined and becomes NaN.

    :param lowest: the least value allowed, as a fraction; the most is 1.
    :raises ValueError: a column or the metric is missing, a key is empty, the streams are
        several, or a value is not a fraction.
    """
    check_columns(frame, COLUMNS)
    rows = frame[frame["metric"] == metric].copy()
    if rows.empty:
        known = ", ".join(sorted(map(str, frame["metric"].dropna().unique()))) or "no rows"
        raise ValueError(f"the frame has no rows of the metric {metric!r}; it has: {known}")
    for column in ("method", "stream", "seed", "protocol"):
        if rows[column].isna().any() or (rows[column] == "").any():
            raise ValueError(
                f"column {column!r} is empty in a row of {metric!r}: every value must say its "
                f"{column}"
            )
    streams = sorted(map(str, rows["stream"].unique()))
    if len(streams) > 1:
        raise ValueError(f"the frame mixes the streams {', '.join(streams)}: pass one stream")
    rows["after_task"] = task_index(rows, "after_task")
    rows["value"] = pd.to_numeric(rows["value"]).astype(float)
    outside = rows["value"][(rows["value"] < lowest) | (rows["value"] > 1)]
    if len(outside):
        raise ValueError(
            f"a value of {metric!r} is {outside.iloc[0]}: pass fractions from {lowest:g} to 1, "
            "not percent"
        )
    rows["value"] *= 100
    return rows


def check_columns(frame: pd.DataFrame, needed: Sequence[str]) -> None:
    """Raise ValueError with the names of the columns that the frame lacks."""
    missing = [column for column in needed if column not in frame.columns]
    if missing:
        raise ValueError(
            f"the frame lacks the column(s) {', '.join(missing)}; it has: "
            f"{', '.join(map(str, frame.columns)) or 'none'}"
        )


def task_index(rows: pd.DataFrame, column: str) -> pd.Series:
    """Return a column of task numbers as int, also when it was read as text or as float.

    :raises ValueError: a value that is empty, below 0 or not whole.
    """
    numbers = pd.to_numeric(rows[column], errors="coerce").astype(float)
    bad = rows[column][~((numbers >= 0) & (numbers % 1 == 0))]
    if len(bad):
        raise ValueError(f"column {column!r} holds {bad.iloc[0]}: pass task numbers 0, 1, 2, ...")
    return numbers.astype(int)


def seed_means(rows: pd.DataFrame, steps: list[str]) -> pd.DataFrame:
    """Return mean and standard deviation over the seeds, one row per (method, protocol, steps).

    The columns are method, protocol, the steps, mean, std and n_seeds: std has ddof 1 and is NaN
    for fewer than two seeds; n_seeds counts the seeds with a defined value.

    :raises ValueError: a seed with two values for one step, or seeds with unlike steps.
    """
    line = ["method", "protocol"]
    twice = rows[rows.duplicated([*line, "seed", *steps])]
    if len(twice):
        first = twice.iloc[0]
        raise ValueError(
            f"{first['method']} ({first['protocol']}) has several rows for seed {first['seed']}, "
            f"{', '.join(f'{step} {first[step]}' for step in steps)}: pass one run per seed"
        )
    for (method, protocol), group in rows.groupby(line, sort=False):
        counts = group.groupby("seed").size()
        n_steps = len(group[steps].drop_duplicates())
        if (counts < n_steps).any():
            seed = counts.idxmin()
            raise ValueError(
                f"{method} ({protocol}): seed {seed} has {counts[seed]} of the {n_steps} steps "
                "that the other seeds have: finish that run, or leave it out"
            )
    means = rows.groupby([*line, *steps], sort=True)["value"].agg(
        mean="mean",
        std="std",
        n_seeds="count",  # pandas' std has ddof 1
    )
    return means.reset_index()


def lines_of(frame: pd.DataFrame) -> list[Line]:
    """Return the (method, protocol) of every line, in the order of the frame."""
    return list(dict.fromkeys(zip(frame["method"], frame["protocol"], strict=True)))


def line_places(lines: list[Line]) -> dict[Line, int]:
    """Return the index of each line's style, see ``style.series_style``.

    A method has the same one in all figures; other names take what is free. Where a method has
    several lines, its protocols, all go by their order.
    """
    if len({method for method, _ in lines}) < len(lines):
        return {line: k for k, line in enumerate(lines)}
    known = {line: METHODS.index(line[0]) for line in lines if line[0] in METHODS}
    free = (k for k in itertools.count() if k not in known.values())
    return {line: known[line] if line in known else next(free) for line in lines}


def line_names(
    lines: list[Line], stream: str, starred: Collection[str] = ()
) -> tuple[list[str], str]:
    """Return a name for each line, and the title: the stream, and a protocol that all have.

    :param starred: methods whose settings are not their defaults: a star follows their names.
    """
    names = [method + "*" * (method in starred) for method, _ in lines]
    protocols = {protocol for _, protocol in lines}
    if len(protocols) == 1:
        return names, f"{stream}, protocol {protocols.pop()}"
    own = [f" ({protocol})" for _, protocol in lines]
    return [name + protocol for name, protocol in zip(names, own, strict=True)], stream


def seeds_of(rows: pd.DataFrame, line: Line) -> str:
    """Return 'n seeds' for one line of ``rows``."""
    own = rows[(rows["method"] == line[0]) & (rows["protocol"] == line[1])]
    n_seeds = own["seed"].nunique()
    return f"{n_seeds} seed{'s' if n_seeds != 1 else ''}"


def series_label(rows: pd.DataFrame, method: str, protocol: str) -> str:
    """Return 'METHOD (PROTOCOL), n seeds' for one line of ``rows``."""
    return f"{method} ({protocol}), {seeds_of(rows, (method, protocol))}"
