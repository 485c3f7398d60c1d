"""Finding the runs below a folder of results, and which of them can stand in one table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.figures import DEFAULT_PROTOCOL
from tosca_avalanche.errors import RecordError
from tosca_avalanche.files import read_json
from tosca_avalanche.records import differences, read_metrics, summarise

HEAD = ("run_id", "method", "stream", "seed", "protocol")


@dataclass
class Finished:
    """A finished run: its folder, its run.json and its metrics."""

    folder: Path
    record: dict[str, Any]
    frame: pd.DataFrame


@dataclass
class Group:
    """Runs of one method under one protocol and the same settings, one per seed."""

    runs: list[Finished]
    summary: pd.DataFrame

    @property
    def frame(self) -> pd.DataFrame:
        """Metrics of all its runs."""
        return pd.concat([r.frame for r in self.runs], ignore_index=True)

    @property
    def name(self) -> str:
        """METHOD/PROTOCOL."""
        return f"{self.runs[0].record['method']}/{self.runs[0].record['protocol']}"

    @property
    def seeds(self) -> list[int]:
        """Its seeds, in order."""
        return [r.record["seed"] for r in self.runs]


@dataclass
class Section:
    """Groups that can be compared: one stream in one folder, the same images, one backbone.

    :param place: folder of the stream below the root.
    :param traits: what tells it from other sections of its folder, in words.
    :param apart: the traits in which those differ.
    """

    place: str
    traits: dict[str, str]
    groups: list[Group] = field(default_factory=list)
    apart: dict[str, str] = field(default_factory=dict)

    @property
    def frame(self) -> pd.DataFrame:
        """Metrics of all runs."""
        return pd.concat([g.frame for g in self.groups], ignore_index=True)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The run.json of all runs."""
        return [r.record for g in self.groups for r in g.runs]

    @property
    def summary(self) -> pd.DataFrame:
        """Means over seeds of all groups."""
        return pd.concat([g.summary for g in self.groups], ignore_index=True)

    @property
    def title(self) -> str:
        """Its folder, and what sets it apart from others there."""
        apart = [v for k, v in self.apart.items() if k not in ("classes", "transform")]
        return " – ".join([self.place, *apart])

    @property
    def protocols(self) -> list[str]:
        """The protocols, the default one first."""
        return sorted(self.summary["protocol"].unique(), key=lambda p: (p != DEFAULT_PROTOCOL, p))


def collect(root: Path) -> tuple[list[Section], list[tuple[str, str]]]:
    """Return what can be reported of a folder of results, and (folder, why not) of the rest.

    Runs of one method and protocol are averaged where all their settings but the seed are
    the same; otherwise the group is refused. Other streams, backbones, tasks or test images
    make another section. Protocols stay apart inside a section.
    """
    sections: dict[tuple[str, ...], list[Finished]] = {}
    refused: list[tuple[str, str]] = []
    for path in sorted(root.rglob("run.json")):
        place = path.parent.relative_to(root)
        if any(part.endswith(".partial") for part in place.parts):
            continue
        try:
            run = read_run(path.parent)
            key = (str(Path(*place.parts[:-3])), *traits_of(run).values())
        except (RecordError, KeyError, TypeError, ValueError, IndexError) as error:
            what = f"run.json has no {error}" if isinstance(error, KeyError) else str(error)
            refused.append((str(place), what))
            continue
        sections.setdefault(key, []).append(run)
    refused += _unfinished(root)
    out = []
    for key, runs in sections.items():
        section = Section(key[0], traits_of(runs[0]))
        for group in _grouped(runs):
            try:
                section.groups.append(_group(group))
            except RecordError as error:
                refused += [(str(r.folder.relative_to(root)), str(error)) for r in group]
        if section.groups:
            out.append(section)
    for one in out:
        beside = [s for s in out if s.place == one.place]
        one.apart = {k: v for k, v in one.traits.items() if len({s.traits[k] for s in beside}) > 1}
    return out, sorted(refused)


def read_run(folder: Path) -> Finished:
    """Return a finished run.

    :raises RecordError: files that don't agree with each other, or a run that stopped early.
    """
    record, frame = read_json(folder / "run.json"), read_metrics(folder / "metrics.csv")
    for key in HEAD:
        found = frame[key].unique().tolist()
        if found != [record[key]]:
            raise RecordError(f"run.json says {key} {record[key]!r}, metrics.csv {found[:3]!r}")
    if folder.parent.name != record["protocol"]:
        raise RecordError(
            f"its protocol is {record['protocol']!r}, but it lies under {folder.parent.name!r}"
        )
    tasks, done = len(record["task_sizes"]), int(frame["after_task"].max()) + 1
    if done != tasks:
        raise RecordError(f"incomplete: metrics.csv has {done} of {tasks} tasks")
    return Finished(folder, record, frame)


def traits_of(run: Finished) -> dict[str, str]:
    """Return, in words, what runs must have in common to stand in one table."""
    record, backbone = run.record, run.record["backbone"]
    sizes = record["task_sizes"]
    last = run.frame[run.frame["metric"] == "A_last"]
    same = f"{len(sizes)} tasks of {sizes[0]} classes"
    transform = {k: v for k, v in backbone["transform"].items() if v is not None}
    return {
        "stream": record["stream"],
        "tasks": same if len(set(sizes)) == 1 else f"tasks of {', '.join(map(str, sizes))} classes",
        "classes": ", ".join(sorted(map(str, record["class_names"]))),
        "test images": f"{int(last['n'].iloc[0]):,}",
        "backbone": f"{backbone['name']}, fingerprint {backbone['fingerprint'][:12]}",
        "precision": str(record["configuration"]["backbone"].get("precision", "float32")),
        "transform": json.dumps(transform, sort_keys=True),
    }


def _grouped(runs: list[Finished]) -> list[list[Finished]]:
    groups: dict[tuple[str, str], list[Finished]] = {}
    for run in runs:
        groups.setdefault((run.record["method"], run.record["protocol"]), []).append(run)
    return [sorted(groups[key], key=lambda r: r.record["seed"]) for key in sorted(groups)]


def _group(runs: list[Finished]) -> Group:
    first, *others = [{**r.record["configuration"], "seed": None} for r in runs]
    for other in others:
        if found := differences(other, first):
            raise RecordError(f"settings are mixed in this group: {'; '.join(found[:3])}")
    summary = summarise(pd.concat([r.frame for r in runs], ignore_index=True))
    return Group(runs, summary)


def _unfinished(root: Path) -> list[tuple[str, str]]:
    out = []
    for partial in sorted(root.rglob("*.partial")):
        state = partial / "state.json"
        done = read_json(state).get("done") if state.is_file() else 0
        name = str(partial.relative_to(root)).removesuffix(".partial")
        out.append((name, f"not finished: {done} tasks are done; the same command goes on"))
    return out
