"""All methods on all streams in one table, per image, with what differs from their defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pandas as pd

from experiments.collect import Group, Section
from experiments.config import method_schema
from experiments.figures import DEFAULT_PROTOCOL
from tosca_avalanche.errors import ToscaError

METRICS = {"A_last": "A_last (%)", "A_bar": "A-bar (%)", "forgetting_max": "forgetting (points)"}
LEGEND = (
    "Protocol per-image. Mean ± standard deviation (ddof 1) over seeds; a number without ± is one "
    "seed. * marks settings other than the method's defaults, listed below. – was not run."
)


def overviews(sections: list[Section]) -> list[tuple[str, list[list[str]], list[str]]]:
    """Return (title, rows with a head, notes) for each backbone and metric.

    Only backbones with more than one stream have any: a single one has its own table.
    Methods are sorted by their mean over the streams that all of them have.
    """
    out = []
    for backbone in dict.fromkeys(s.traits["backbone"] for s in sections):
        mine = [s for s in sections if s.traits["backbone"] == backbone and _groups(s)]
        if len(mine) < 2:
            continue
        for metric, title in METRICS.items():
            out.append((f"{title}, backbone {backbone}", _rows(mine, metric), _notes(mine)))
    return out


def markdown(sections: list[Section]) -> str:
    """Return the overviews as Markdown; empty where there are none."""
    parts = []
    found = overviews(sections)
    for title, (head, *rows), _ in found:
        lines = [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 1)]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        parts += [f"## {title}", "\n".join(lines)]
    if found:
        parts += [LEGEND, "\n".join(f"- {note}" for note in found[-1][2])]
    return "\n\n".join(part for part in parts if part) + "\n" if parts else ""


def _groups(section: Section) -> dict[str, Group]:
    return {
        g.runs[0].record["method"]: g for g in section.groups if _protocol(g) == DEFAULT_PROTOCOL
    }


def _protocol(group: Group) -> str:
    return str(group.runs[0].record["protocol"])


def _rows(sections: list[Section], metric: str) -> list[list[str]]:
    found = {s.title: _groups(s) for s in sections}
    methods = {name for groups in found.values() for name in groups}
    shared = [t for t, groups in found.items() if set(groups) == methods] or list(found)

    def score(name: str) -> tuple[float, str]:
        means = [_value(found[t][name], metric)[0] for t in shared if name in found[t]]
        known = [m for m in means if m is not None]
        best = -sum(known) / len(known) if known else 0.0
        return (-best if metric == "forgetting_max" else best), name

    body = [
        [name, *(_cell(groups.get(name), metric) for groups in found.values())]
        for name in sorted(methods, key=score)
    ]
    return [["method", *found], *body]


def _value(group: Group, metric: str) -> tuple[float | None, float | None]:
    rows = group.summary.set_index("metric")
    if metric not in rows.index or pd.isna(rows.loc[metric, "mean"]):
        return None, None
    std = rows.loc[metric, "std"]
    return float(rows.loc[metric, "mean"]), None if pd.isna(std) else float(std)


def _cell(group: Group | None, metric: str) -> str:
    mean, std = (None, None) if group is None else _value(group, metric)
    if group is None or mean is None:
        return "–"
    spread = "" if std is None else f" ± {100 * std:.1f}"
    return f"{100 * mean:.1f}{spread}{'*' if changed(group.runs[0].record) else ''}"


def starred(records: Iterable[dict[str, Any]]) -> set[str]:
    """Return the methods that run with other settings than their defaults."""
    return {r["method"] for r in records if r["protocol"] == DEFAULT_PROTOCOL and changed(r)}


def changed(record: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run that are not its method's defaults."""
    settings = record["configuration"].get("method", {})
    try:
        fields = dataclasses.fields(method_schema(str(settings.get("name"))))
    except (ToscaError, ValueError):  # a method that is not installed here
        return {}
    defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
    outside = ("name", "label", "selection")  # the selection is in the protocol
    return {
        k: v for k, v in settings.items()
        if k in defaults and k not in outside and _plain(v) != _plain(defaults[k])
    }  # fmt: skip


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value  # JSON has no tuples


def _notes(sections: list[Section]) -> list[str]:
    """Return for each method its unusual settings and where they hold."""
    places: dict[tuple[str, str], list[str]] = {}
    for section in sections:
        for name, group in _groups(section).items():
            if found := changed(group.runs[0].record):
                said = ", ".join(f"{k}={v}" for k, v in found.items())
                places.setdefault((name, said), []).append(section.title)
    return [f"{name}: {said} ({', '.join(where)})" for (name, said), where in places.items()]
