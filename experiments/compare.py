"""Several methods and seeds side by side on one stream: runs, a table, plots.

``python -m experiments.compare stream=digits methods=[tosca,simplecil] seeds=[1993,1994]``

Own keys: ``methods``, ``seeds`` and ``selections`` (protocols of the methods that have
one; by default the method's own). All other keys are those of ``experiments.run``; a ``method.``
key goes to the methods that have it, ``ease.train_epochs=5`` to EASE alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.command_line import as_command
from experiments.config import compose, method_schema, register_configs, to_settings
from experiments.figures import method_figures, stream_figures
from experiments.identity import run_path
from experiments.overview import starred
from experiments.run import execute
from tosca_avalanche.files import atomic_write, read_json, write_text
from tosca_avalanche.records import read_metrics, summarise, table
from tosca_avalanche.strategies import find_strategy

OWN_KEYS = {
    "methods": ["tosca", "simplecil"],
    "seeds": [1993],
    "selections": [None],
}


def parse(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Split the command line into this command's own keys and those of a run."""
    own = [a for a in arguments if a.partition("=")[0] in OWN_KEYS]
    try:
        given = OmegaConf.to_container(OmegaConf.from_dotlist(own))
    except OmegaConfBaseException as error:
        raise ValueError(f"{own} can't be read: {error}") from error
    values = {**OWN_KEYS, **given}  # type: ignore[dict-item]
    for key, value in values.items():
        values[key] = value if isinstance(value, list) else [value]
    rest = [a for a in arguments if a not in own]
    taken = [a for a in rest if a.partition("=")[0] in ("method", "seed")]
    if taken:
        raise ValueError(f"{taken[0]!r}: here it is methods=[...] and seeds=[...]")
    return values, rest


def plan(arguments: list[str]) -> list[dict[str, Any]]:
    """Return the settings of every run, all keys checked before the first one starts."""
    own, rest = parse(arguments)
    out = []
    for name, mine in overrides_of(own["methods"], rest).items():
        selections = own["selections"] if "selection" in _keys(name) else [None]
        for selection in selections:
            chosen = [] if selection is None else [f"method.selection={selection}"]
            for seed in own["seeds"]:
                out.append(settings_of(name, seed, [*mine, *chosen]))
    return out


def overrides_of(methods: list[str], rest: list[str]) -> dict[str, list[str]]:
    """Return each method's share of a command line's keys of runs.

    :raises ValueError: an unknown method, or a ``method.`` key that none of them has.
    """
    keys = {name: _keys(name) for name in methods}
    for_methods = [a for a in rest if a.startswith("method.")]
    for_one = [a for a in rest if a.partition(".")[0] in keys]
    for override in for_methods:
        key = override.partition("=")[0].removeprefix("method.")
        if not any(key in k for k in keys.values()):
            raise ValueError(f"none of {methods} has the key {override.partition('=')[0]!r}")
    shared = [a for a in rest if a not in for_methods and a not in for_one]
    out = {}
    for name in keys:
        mine = [a for a in for_methods if a.partition("=")[0].removeprefix("method.") in keys[name]]
        mine += [f"method.{a.partition('.')[2]}" for a in for_one if a.partition(".")[0] == name]
        out[name] = [*shared, *mine]
    return out


def settings_of(name: str, seed: int, overrides: list[str]) -> dict[str, Any]:
    """Return the checked settings of one run of a method."""
    return to_settings(compose([f"method={name}", f"seed={seed}", *overrides]))


def execute_all(settings: list[dict[str, Any]]) -> list[Path]:
    """Do the runs that are not finished yet, one after another; return the folders of all."""
    folders = []
    for i, one in enumerate(settings):
        print(f"run {i + 1} of {len(settings)}: {run_path(one)}", flush=True)
        folders.append(execute(one))
    return folders


def _keys(name: str) -> set[str]:
    find_strategy(name)
    return set(method_schema(name).__dataclass_fields__)  # type: ignore[attr-defined]


def report(folders: list[Path], out: Path) -> pd.DataFrame:
    """Write summary.csv, the text table and the plots of finished runs; return the summary."""
    frame = pd.concat([read_metrics(f / "metrics.csv") for f in folders], ignore_index=True)
    summary = summarise(frame)
    atomic_write(out / "summary.csv", lambda p: summary.to_csv(p, index=False))
    text = "\n\n".join(
        f"{summary['stream'].iloc[0]}, protocol {protocol}:\n\n{table(summary, protocol)}"
        for protocol in summary["protocol"].unique()
    )
    write_text(out / "summary.md", text + "\n")
    print("\n" + text + "\n")
    unusual = starred(read_json(f / "run.json") for f in folders)
    stream_figures(frame, summary, out, starred=unusual)
    for (method, protocol), runs in frame.groupby(["method", "protocol"]):
        mine = [f for f in folders if f.parent.name == protocol and f.parent.parent.name == method]
        method_figures(runs, mine, mine[0].parent)
    return summary


def main() -> None:
    """Run what is not finished yet, then print the table and write the plots."""
    register_configs()
    with as_command("the same command takes up where it stopped"):
        folders = execute_all(plan(sys.argv[1:]))
        out = folders[0].parents[2]
        report(folders, out)
        print(f"table, plots and their numbers: {out}")


if __name__ == "__main__":
    main()
