"""All methods on all streams: the commands behind ``results/comparison``, as one.

``python -m experiments.comparison --data FOLDER [--only aid30] [--list]`` reads
FOLDER/{aid30,cifar100,grocery81,pacs4x7}.tar (a stream whose file is missing is left out and
named) and the embedded digits and glyphs. Finished runs are not repeated: on a clone with its
results there is nothing to do until a folder of runs is deleted. At the end it writes
the report, see ``experiments.report``, and each stream's figures beside its runs.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from experiments.collect import collect
from experiments.command_line import as_command
from experiments.compare import execute_all, plan
from experiments.config import register_configs
from experiments.figures import stream_figures
from experiments.overview import starred
from experiments.report import write_report


def _tar(name: str, *more: str, label: str = "") -> list[str]:
    return [f"stream.root={{data}}/{name}.tar", f"stream.label={label or name}", *more]


STREAMS: dict[str, list[str]] = {
    "digits": ["stream=digits"],
    "aid30": ["stream=folder", *_tar("aid30", "stream.classes_per_task=5")],
    "grocery81": ["stream=folder", *_tar("grocery81", "stream.classes_per_task=9")],
    "pacs4x7": [
        "stream=domains",
        *_tar("pacs4x7", "stream.order=[photo,art_painting,cartoon,sketch]"),
    ],
    "cifar100": ["stream=folder", *_tar("cifar100", "stream.classes_per_task=10")],
    "cifar100-20x5": [
        "stream=folder",
        *_tar("cifar100", "stream.classes_per_task=5", label="cifar100-20x5"),
    ],
    "glyphs": ["stream=glyphs"],
}
FIVE, THREE, ONE = (f"seeds={list(range(1993, 1993 + n))}".replace(" ", "") for n in (5, 3, 1))
PHOTOS = ("aid30", "grocery81", "pacs4x7")
SMALL = ("digits", *PHOTOS)
SPLITS = ("cifar100", "cifar100-20x5")
TEN = (*SMALL, "cifar100")
FREE = "tosca,simplecil,slda"  # one pass of each image serves all seeds


def _epochs(methods: str, epochs: int) -> list[str]:
    return [f"{method}.train_epochs={epochs}" for method in methods.split(",")]


PROMPTS, ADAPTERS = "l2p,dualprompt,codaprompt", "ease,mos"
# streams, methods, seeds, and what differs from the published settings
PLAN: list[tuple[tuple[str, ...], str, str, list[str]]] = [
    (tuple(STREAMS), FREE, FIVE, []),
    ((*TEN, "cifar100-20x5"), "tosca_routed", FIVE, []),
    (("glyphs",), "tosca_routed", THREE, []),
    (TEN, "joint", FIVE, []),
    (("cifar100-20x5", "glyphs"), "joint", ONE, []),
    (tuple(STREAMS), "tosca", FIVE, ["selections=[entropy-batch,oracle]"]),
    (tuple(STREAMS), "tosca", FIVE, ["selections=[entropy-batch]", "eval_order=shuffled"]),
    ((*SMALL, *SPLITS), "ranpac", ONE, []),
    (("glyphs",), "ranpac", ONE, ["ranpac.projection=2000"]),
    (("digits",), PROMPTS, ONE, []),
    (PHOTOS, PROMPTS, ONE, _epochs("codaprompt", 5)),
    (("cifar100", "glyphs"), PROMPTS, ONE, _epochs(PROMPTS, 3)),
    (("cifar100-20x5",), "l2p", ONE, _epochs("l2p", 3)),
    (("aid30",), "l2p", ONE, ["l2p.batchwise=true"]),
    (("aid30",), "l2p", ONE, ["l2p.batchwise=true", "eval_order=shuffled"]),
    (SMALL, ADAPTERS, ONE, _epochs(ADAPTERS, 5)),
    (("cifar100", "glyphs"), ADAPTERS, ONE, _epochs(ADAPTERS, 1)),
    (tuple(STREAMS), "aper", ONE, []),
    (tuple(STREAMS), "finetune", ONE, _epochs("finetune", 3)),
]


def commands(data: str, only: list[str] | None = None) -> list[tuple[str, list[str]]]:
    """Return (stream, arguments of ``experiments.compare``), stream by stream."""
    return [
        (
            stream,
            [a.format(data=data) for a in STREAMS[stream]] + [f"methods=[{methods}]", seeds, *more],
        )
        for stream in STREAMS
        for streams, methods, seeds, more in PLAN
        if stream in streams and (not only or stream in only)
    ]


def missing(arguments: list[str]) -> str | None:
    """Return the file that a stream needs and that is not there."""
    root = next((a.partition("=")[2] for a in arguments if a.startswith("stream.root=")), None)
    return None if root is None or Path(root).exists() else root


def main(arguments: list[str] | None = None) -> None:
    """Run what is not finished yet, then write the report."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison", description=__doc__)
    parser.add_argument("--data", default="data", help="folder of the tars")
    parser.add_argument("--only", nargs="+", choices=STREAMS, help="these streams alone")
    parser.add_argument("--results", type=Path, default=Path("results/comparison"))
    parser.add_argument("--list", action="store_true", help="print the commands, run nothing")
    options = parser.parse_args(arguments)
    todo = []
    for stream, one in commands(options.data, options.only):
        if options.list:
            line = [*one, f"results_root={options.results}"]
            print(f"python -m experiments.compare {shlex.join(line)}")
        elif lacking := missing(one):
            print(f"left out: {stream}, for {lacking} is not there", file=sys.stderr)
        else:
            todo.append(one)
    if options.list:
        return
    register_configs()
    with as_command("the same command takes up where it stopped"):
        runs = [s for one in todo for s in plan([*one, f"results_root={options.results}"])]
        execute_all(runs)
        sections, refused = collect(options.results)
        write_report(options.results, options.results / "report", sections, refused)
        for section in sections:
            out, unusual = options.results / section.place, starred(section.records)
            stream_figures(section.frame, section.summary, out, starred=unusual)
    print(options.results / "report/report.html")


if __name__ == "__main__":
    main()
