"""The paper's analyses, each by one command and from real runs.

``python -m experiments.ablate NAME stream=digits seeds=[1993,1994]``; without a name it lists
them. Own keys: ``seeds``, and ``methods`` where an analysis is open to them; all others are
those of ``experiments.compare``. Runs lie where ``experiments.run`` puts them, below
``results_root=results/ablations``, under a label of their own where their settings are not the
default; finished ones are not repeated. The table and the figure go to
``results_root/NAME/STREAM``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.ablations import ACCURACY, Ablation, Variant, find_ablation
from experiments.collect import read_run, traits_of
from experiments.command_line import as_command
from experiments.compare import execute_all, overrides_of, parse, settings_of
from experiments.config import register_configs
from experiments.identity import label_of
from experiments.measures import MEASURES, Measure
from experiments.module_study import SEPARATIONS, SIMILARITIES
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import RecordError
from tosca_avalanche.files import atomic_write, write_text
from tosca_avalanche.plots import plot_dots
from tosca_avalanche.records import markdown_table, mean_text, over_seeds

ALL: Mapping[str, Measure] = {**MEASURES, **SIMILARITIES, **SEPARATIONS}
ROOT = "results/ablations"
Plan = list[tuple[Variant, dict[str, Any]]]


def plan(name: str, arguments: list[str]) -> Plan:
    """Return every run of an ablation with the row that it is for, all keys checked.

    :raises ValueError: no such ablation, or a key that it has not or sets itself.
    """
    ablation = find_ablation(name)
    own, rest = parse(arguments)
    for argument in arguments:
        key = argument.partition("=")[0]
        if key == "selections" or (key == "methods" and not ablation.open):
            hint = "pass METHOD.selection=..." if ablation.open else "it has its own runs"
            raise ValueError(f"{argument!r}: {name} takes no {key}; {hint}")
    given = any(a.partition("=")[0] == "methods" for a in arguments)
    methods = own["methods"] if given else list(ablation.methods)
    if ablation.reference == "tosca" and ablation.relative and "tosca" not in methods:
        raise ValueError(f"methods={methods}: {name} gives ratios to tosca; put tosca among them")
    if not any(a.partition("=")[0] == "results_root" for a in rest):
        rest = [*rest, f"results_root={ROOT}"]
    mine = overrides_of(methods, rest)

    def width() -> int:
        first = settings_of(methods[0], own["seeds"][0], mine[methods[0]])
        return load_backbone(**first["backbone"]).embed_dim

    variants = ablation.variants(methods, width)
    fixed = {(v.method, a.partition("=")[0]) for v in variants for a in v.overrides}
    for argument in rest:
        key = argument.partition("=")[0]
        group, _, leaf = key.partition(".")
        if group in ("method", *methods):
            key = f"method.{leaf}"
        if any((m, key) in fixed for m in ([group] if group in methods else methods)):
            raise ValueError(f"{argument!r}: {name} sets {key} itself, leave it out")
    return [
        (v, settings_of(v.method, seed, [*mine[v.method], *v.overrides]))
        for v in variants
        for seed in own["seeds"]
    ]


def measured(ablation: Ablation, runs: Plan) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Do the runs; return a row per number, with setting, protocol and seed, and the head.

    :raises RecordError: runs that can't stand in one table, such as those of two backbones.
    """
    rows, traits, tasks = [], None, 0
    folders = execute_all([settings for _, settings in runs])
    for (variant, _), folder in zip(runs, folders, strict=True):
        run = read_run(folder)
        found = traits_of(run)
        apart = [key for key in found if traits and traits[key] != found[key]]
        if traits and apart:
            one = apart[0]
            raise RecordError(
                f"{folder} has {one} {found[one]!r}, the run before it {traits[one]!r}: they can't "
                f"stand in one table; overwrite=true repeats all"
            )
        traits, tasks = found, len(run.record["task_sizes"])
        rows += [
            {
                "setting": variant.setting,
                "protocol": run.record["protocol"],
                "seed": run.record["seed"],
                "metric": metric,
                "value": MEASURES[metric].value(run),
            }
            for metric in ablation.measures
        ]
    assert traits is not None
    head = {"stream": traits["stream"], "backbone": traits["backbone"], "tasks": tasks}
    return pd.DataFrame(rows), head


def against(
    values: pd.DataFrame, metrics: tuple[str, ...], reference: str, sign: str
) -> pd.DataFrame:
    """Return metrics over ("/") or less ("-") those of a setting, seed by seed, named so."""
    own = values[values["metric"].isin(metrics)].astype({"value": float})
    base = own[own["setting"] == reference].set_index(["metric", "seed"])["value"].astype(float)
    other = pd.Series([base[key] for key in zip(own["metric"], own["seed"], strict=True)])
    if sign == "/":
        value = own["value"] / other.where(lambda b: b != 0).to_numpy()
    else:
        value = own["value"] - other.to_numpy()
    return own.assign(metric=own["metric"] + f" {sign} {reference}", value=value)


def summarised(values: pd.DataFrame, head: dict[str, Any]) -> pd.DataFrame:
    """Return mean, std (ddof 1) and n of every number over its seeds, in the order given."""
    keys = ["setting", "protocol", "metric"]
    named = values.astype({"value": float}).assign(method=values["setting"], stream=head["stream"])
    means = over_seeds(named).rename(columns={"method": "setting", "std": "std_ddof1"})
    ordered = values[keys].drop_duplicates().merge(means, on=keys)
    return ordered[[*keys, "mean", "std_ddof1", "n", "seeds", "stream"]].assign(
        backbone=head["backbone"]
    )


def cells(
    summary: pd.DataFrame, columns: dict[str, Measure], last: tuple[str, ...] = ()
) -> list[list[str]]:
    """Return head and rows of a table; every row says its protocol and how many seeds.

    :param last: a further row as it is, without protocol and seeds.
    """
    out = [["setting", "protocol", "n", *(m.title for m in columns.values())]]
    for (setting, protocol), own in summary.groupby(["setting", "protocol"], sort=False):
        by = own.set_index("metric")
        line = [setting, protocol, str(int(own["seeds"].iloc[0]))]
        for metric, measure in columns.items():
            mean = by.loc[metric, "mean"] * measure.factor
            std = None if measure.exact else by.loc[metric, "std_ddof1"] * measure.factor
            line.append("–" if pd.isna(mean) else mean_text(mean, std, measure.digits))
        out.append(line)
    return out + [list(last)] * bool(last)


def write(
    name: str, ablation: Ablation, values: pd.DataFrame, head: dict[str, Any], out: Path
) -> str:
    """Write table.csv, table.md and, for runs, the figure; return the table as text."""
    columns = {metric: ALL[metric] for metric in ablation.measures}
    tables, reference = [], ablation.reference
    if ablation.relative:
        if reference == "best":
            own = values[values["metric"] == ablation.relative[0]].astype({"value": float})
            reference = own.groupby("setting")["value"].mean().idxmax()
        relative = against(values, ablation.relative, reference, "/")
        values = pd.concat([values, relative], ignore_index=True)
        of = {
            f"{m} / {reference}": replace(
                ALL[m], title=ALL[m].title.partition(" (")[0], factor=1, digits=2
            )
            for m in ablation.relative
        }
        shown = {f"{m} / {reference}": text for m, text in ablation.published}
        last = ("published", "–", "–", *(shown.get(m, "–") for m in of)) if shown else ()
        tables.append((f"Relative to {reference}, seed by seed:", of, last))
    if ablation.baseline:
        base = next(s for s in values["setting"] if s.endswith(ablation.baseline))
        values = pd.concat([values, against(values, ACCURACY, base, "-")], ignore_index=True)
        of = {
            f"{m} - {base}": replace(ALL[m], title=ALL[m].title.replace("(%)", "(points)"))
            for m in ACCURACY
        }
        tables.append((f"Difference to {base}, seed by seed:", of, ()))
    summary = summarised(values, head)
    seeds = ", ".join(map(str, sorted(values["seed"].unique())))
    text = [
        f"# {name}: {ablation.about}",
        f"Stream {head['stream']} ({head['tasks']} tasks), backbone {head['backbone']}. Seeds "
        f"{seeds}; mean ± standard deviation (ddof 1) over n seeds.",
        markdown_table(cells(summary, columns)),
    ]
    for title, of, last in tables:
        text += [title, markdown_table(cells(summary, of, last))]
    whole = "\n\n".join([*text, ablation.note])
    atomic_write(out / "table.csv", lambda p: summary.to_csv(p, index=False))
    write_text(out / "table.md", whole + "\n")
    if ablation.study is None:
        _draw(ablation, summary, head, out / f"{name}.png")
    return whole


def _draw(ablation: Ablation, summary: pd.DataFrame, head: dict[str, Any], path: Path) -> None:
    own = pd.concat([summary[summary["metric"] == metric] for metric in ablation.drawn])
    factor = own["metric"].map(lambda metric: ALL[metric].factor)
    drawn = own.assign(
        panel=own["metric"].map(lambda metric: ALL[metric].title),
        mean=own["mean"] * factor,
        std_ddof1=own["std_ddof1"] * factor,
    )
    title = f"{ablation.about}\n{head['stream']}, backbone {head['backbone'].partition(',')[0]}"
    plot_dots(drawn, path, title)


def ablate(name: str, arguments: list[str]) -> Path:
    """Do what is not finished of an ablation, write its table and figure; return their folder."""
    runs, ablation = plan(name, arguments), find_ablation(name)
    first = runs[0][1]
    out = Path(first["results_root"], name, label_of(first["stream"]))
    if ablation.study is None:
        values, head = measured(ablation, runs)
    else:
        labelled = [(variant.setting, settings) for variant, settings in runs]
        values, head = ablation.study(labelled, out / f"{name}.png")
    print(f"\n{write(name, ablation, values, head, out)}\n")
    return out


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line; problems of the user's making are a line, not a traceback."""
    register_configs()
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    with as_command("finished tasks of its runs are kept, and the same command goes on"):
        print(f"table, figure and its numbers: {ablate(name, rest)}")


if __name__ == "__main__":
    main()
