"""One report of all results below a folder: tables, figures, and a page to read.

``python -m experiments.report RESULTS_ROOT [--out FOLDER]`` writes into RESULTS_ROOT/report:
``report.html`` (one file with everything in it, no script, no server), ``overview.md`` (methods
by streams), ``summary.csv`` (mean, std with ddof 1, n), ``summary.md``, ``summary.tex``, and the
figures as SVG with their numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from experiments import overview
from experiments.collect import Section, collect
from experiments.command_line import as_command
from experiments.figures import method_figures, stream_figures
from experiments.report_page import page
from tosca_avalanche.errors import RecordError
from tosca_avalanche.files import atomic_write, write_text
from tosca_avalanche.records import latex_table, table


def write_report(
    root: Path, out: Path, sections: list[Section], refused: list[tuple[str, str]]
) -> None:
    """Write the report of what :func:`collect` found below ``root``; say what it leaves out.

    :raises RecordError: there is nothing to report.
    """
    if not sections:
        why = "".join(f"\n  {place}: {reason}" for place, reason in refused)
        raise RecordError(f"{root} holds no finished run that can be reported{why}")
    frame = pd.concat([_numbers(s) for s in sections], ignore_index=True)
    atomic_write(out / "summary.csv", lambda p: frame.to_csv(p, index=False))
    write_text(out / "summary.md", "\n\n".join(_markdown(s) for s in sections) + "\n")
    write_text(out / "summary.tex", "\n\n".join(_latex(s) for s in sections) + "\n")
    if text := overview.markdown(sections):
        write_text(out / "overview.md", text)
    figures = [_figures(s, out / "figures" / _folder(sections, s)) for s in sections]
    write_text(out / "report.html", page(root.resolve().name, sections, figures, refused))
    for place, why in refused:
        print(f"left out: {place}: {why}", file=sys.stderr)


def _folder(sections: list[Section], section: Section) -> Path:
    same = [s for s in sections if s.place == section.place]
    number = same.index(section)
    return Path(f"{section.place}-{number + 1}" if number else section.place)


def _numbers(section: Section) -> pd.DataFrame:
    frame = section.summary.assign(folder=section.place, backbone=section.traits["backbone"])
    seeds = {g.name: " ".join(map(str, g.seeds)) for g in section.groups}
    frame["seed_list"] = (frame["method"] + "/" + frame["protocol"]).map(seeds)
    head = ["folder", "backbone"]
    return frame[head + [c for c in frame.columns if c not in head]]


def _markdown(section: Section) -> str:
    summary = section.summary
    parts = [f"## {section.title}\n\nBackbone {section.traits['backbone']}."]
    parts += [f"Protocol {p}:\n\n{table(summary, p)}" for p in section.protocols]
    return "\n\n".join(parts)


def _latex(section: Section) -> str:
    captions = {
        p: f"{section.title}, protocol {p}, backbone {section.traits['backbone']}. Mean and "
        f"standard deviation (ddof 1) over seeds."
        for p in section.protocols
    }
    return "\n\n".join(latex_table(section.summary, p, c) for p, c in captions.items())


def _figures(section: Section, out: Path) -> dict[str, list[Path] | str]:
    """Draw all figures; under "" those of the stream, under METHOD/PROTOCOL those of a group."""
    unusual = overview.starred(section.records)
    found = {
        "": _drawn(lambda: stream_figures(section.frame, section.summary, out, "svg", unusual))
    }
    for group in section.groups:
        found[group.name] = _drawn(
            lambda g=group: method_figures(g.frame, [r.folder for r in g.runs], out / g.name, "svg")
        )
    return found


def _drawn(draw: Callable[[], list[Path]]) -> list[Path] | str:
    try:
        return draw()
    # nothing that can be drawn, such as no test images at all, or a damaged table
    except (ValueError, RecordError) as error:
        return str(error)


def main(arguments: list[str] | None = None) -> None:
    """Write the report and name what is not in it."""
    parser = argparse.ArgumentParser(prog="python -m experiments.report", description=__doc__)
    parser.add_argument("root", type=Path, help="folder of results, at any depth")
    parser.add_argument("--out", type=Path, help="where the report goes; default ROOT/report")
    options = parser.parse_args(arguments)
    out = options.out or options.root / "report"
    with as_command("the same command begins the report again"):
        write_report(options.root, out, *collect(options.root))
    print(out / "report.html")


if __name__ == "__main__":
    main()
