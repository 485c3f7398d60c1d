"""The page of a report: plain HTML with its style and figures in it, no script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from experiments.collect import Finished, Group, Section
from experiments.overview import LEGEND, overviews
from tosca_avalanche.records import table_cells
from tosca_avalanche.version import __version__

STYLE = """
:root { color-scheme: light; --line: #d8d8d8; --soft: #f5f6f8; --ink: #1c1f23; --dim: #5a6069; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 16px; color: var(--ink); background: #fff;
       font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; margin: .4em 0; } h2 { font-size: 1.35rem; margin: 2em 0 .4em;
     padding-top: .6em; border-top: 2px solid var(--ink); } h3 { margin: 1.6em 0 .3em; }
h1, h2, h3, h4, p, li, figcaption, summary { overflow-wrap: anywhere; } h4 { margin: 1.4em 0 .4em; }
p { margin: .4em 0; max-width: 75ch; } .dim { color: var(--dim); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; margin: .6em 0; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums;
        min-width: 100%; }
th, td { padding: 5px 10px; text-align: right; border-bottom: 1px solid var(--line);
         white-space: nowrap; } tr:last-child td { border-bottom: 0; }
thead th { background: var(--soft); vertical-align: bottom; white-space: normal; min-width: 5.5em; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 7em; max-width: 38vw; }
thead th:first-child { background: var(--soft); }
.words th, .words td { text-align: left; }
.figures { display: grid; gap: 16px; align-items: start;
           grid-template-columns: repeat(auto-fill, minmax(min(100%, 420px), 1fr)); }
figure { margin: 0; border: 1px solid var(--line); border-radius: 6px; padding: 8px; }
figure svg { display: block; width: 100%; max-width: 640px; height: auto; margin: 0 auto; }
figcaption { font-size: .85rem; color: var(--dim); }
.notice { background: #fff7e0; border: 1px solid #e5c765; border-radius: 6px; padding: 8px 14px; }
details { margin: .5em 0; } summary { cursor: pointer; }
pre { overflow-x: auto; background: var(--soft); padding: 10px; border-radius: 6px;
      font-size: .8rem; }
a { color: #0b57a4; }
"""
PROTOCOLS = {
    "per-image": "Each image is answered by itself; the answer does not depend on the batch.",
    "oracle-task": "The task of every image is told: a ceiling, not a result.",
    "batch": "The images of a batch choose together. Where batches are sorted by class, the task "
    "leaks through the batch: don't compare with per-image results.",
}
CAPTIONS = {
    "accuracy": "Accuracy on all classes seen so far, after each task",
    "forgetting": "Forgetting (max form) after each task; lower is better",
    "cost": "Accuracy after the last task, over what it costs",
    "protocols": "The same method under several protocols: what a batch, or the task, gives away",
    "heatmap": "Accuracy on each task (column) after learning each task (row)",
    "selection": "Which module the images of each task chose; the diagonal is right",
    "prompts": "Which prompts the images of each task chose",
    "reliability": "How often it is right, over how sure it says it is",
}
WORDS = (
    "A_last is the accuracy on all classes after the last task, A-bar the mean of that accuracy "
    "over the tasks, forgetting the mean over earlier tasks of (best accuracy so far minus the "
    "current one), module selection the share of images answered by the module of their own task. "
    "A number is the mean over seeds ± one standard deviation (ddof 1; none with one seed). "
    "Learned numbers are those stored beside the backbone. Times are of the machine below; they "
    "hold the backbone's pass where the feature store was still empty."
)


def page(
    name: str,
    sections: list[Section],
    figures: list[dict[str, list[Path] | str]],
    refused: list[tuple[str, str]],
) -> str:
    """Return the HTML of a report.

    :param figures: by section, SVG files by METHOD/PROTOCOL, "" for the stream's own; or why
        there are none.
    :param refused: (folder, why not) of the runs that are not in it.
    """
    runs = [r for s in sections for g in s.groups for r in g.runs]
    places = _environments(runs)
    newest = max(r.record["finished"] for r in runs)
    links = "".join(f'<li><a href="#s{i}">{_(s.title)}</a></li>' for i, s in enumerate(sections))
    body = [
        f"<h1>Results: {_(name)}</h1>",
        f'<p class="dim">{len(runs)} finished runs, the newest of {_(newest)}; made by '
        f"tosca_avalanche {__version__}.</p>",
        f"<p>{_(WORDS)}</p>",
        f'<ul>{links}<li><a href="#machines">Machines and versions</a></li></ul>',
        _refused(refused),
        *_overview(sections),
        *(
            _section(i, s, drawn, places)
            for i, (s, drawn) in enumerate(zip(sections, figures, strict=True))
        ),
        '<h2 id="machines">Machines and versions</h2>',
        "" if len(places) == 1 else "<p>Times of different machines can't be compared.</p>",
        _table(
            [["", *_flat(next(iter(places.values()))[1])]]
            + [[mark, *_flat(found).values()] for mark, found in places.values()],
            "words",
        ),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Results: {_(name)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def _(text: Any) -> str:
    return escape(str(text))


def _refused(refused: list[tuple[str, str]]) -> str:
    if not refused:
        return ""
    items = "".join(f"<li><b>{_(place)}</b>: {_(why)}</li>" for place, why in refused)
    return f'<div class="notice"><b>Not in this report</b><ul>{items}</ul></div>'


def _overview(sections: list[Section]) -> list[str]:
    parts, found = [], overviews(sections)
    for title, rows, _notes in found:
        parts += [f"<h3>{_(title)}</h3>", _table(rows)]
    if not parts:
        return []
    items = "".join(f"<li>{_(note)}</li>" for note in found[-1][2])
    legend = f'<p class="dim">{_(LEGEND)}</p><ul class="dim">{items}</ul>'
    return ["<h2>All methods on all streams</h2>", *parts, legend]


def _section(
    number: int, section: Section, drawn: dict[str, list[Path] | str], places: dict[str, Any]
) -> str:
    traits = section.traits
    parts = [
        f'<h2 id="s{number}">{_(section.title)}</h2>',
        f"<p>{_(traits['tasks'])}, {_(traits['test images'])} test images. Backbone "
        f"{_(traits['backbone'])}, {_(traits['precision'])}.</p>",
    ]
    if section.apart:
        what = ", ".join(section.apart)
        said = f"Shown apart: other runs in this folder differ in {what}."
        parts.append(f'<p class="notice">{_(said)}</p>')
    if len({tuple(g.seeds) for g in section.groups}) > 1:
        parts.append('<p class="notice">The methods do not have the same seeds; see Runs.</p>')
    for protocol in section.protocols:
        said = next((v for k, v in PROTOCOLS.items() if protocol.startswith(k)), "")
        parts += [f"<h3>Protocol {_(protocol)}</h3>", f'<p class="dim">{_(said)}</p>']
        parts.append(_table(table_cells(section.summary, protocol)))
    parts.append(_figures(drawn[""], f"{number}"))
    for i, group in enumerate(section.groups):
        method, protocol = group.name.rsplit("/", 1)
        parts.append(f"<h4>{_(method)} ({_(protocol)})</h4>")
        parts.append(_figures(drawn[group.name], f"{number}-{i}"))
    parts += ["<h3>Runs</h3>", _runs(section, places)]
    parts += [_settings(group) for group in section.groups]
    return "\n".join(parts)


def _table(rows: list[list[Any]], kind: str = "") -> str:
    head = "".join(f"<th>{_(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{_(c)}</td>" for c in row) + "</tr>" for row in rows[1:])
    return (
        f'<div class="scroll" tabindex="0"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _figures(files: list[Path] | str, mark: str) -> str:
    if isinstance(files, str):
        return f'<p class="notice">No figures: {_(files)}</p>'
    shown = [_figure(path, f"f{mark}-{path.stem}-") for path in files]
    return f'<div class="figures">{"".join(shown)}</div>'


def _figure(path: Path, mark: str) -> str:
    """Put an SVG into the page, its names made its own: ids are shared by the whole page."""
    svg = path.read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{mark}", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    caption = CAPTIONS[path.stem]
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{_(caption)}"', 1)
    return f"<figure>{svg}<figcaption>{_(caption)}</figcaption></figure>"


def _runs(section: Section, places: dict[str, Any]) -> str:
    rows: list[list[Any]] = [
        ["method", "protocol", "seed", "class order", "machine", "device", "finished",
         "images passed", "training views", "folder"],
    ]  # fmt: skip
    for run in (r for g in section.groups for r in g.runs):
        record, settings = run.record, run.record["configuration"]
        order = settings.get("class_order_seed")
        rows.append(
            [record["method"], record["protocol"], record["seed"],
             "of the seed" if order is None else order,
             places[_environment(run)][0], settings.get("device", "?"), record["finished"],
             f"{record.get('images_passed', 0):,}", record.get("train_views", "?"),
             "/".join(run.folder.parts[-4:])]
        )  # fmt: skip
    return _table(rows, "words")


def _settings(group: Group) -> str:
    settings = {k: v for k, v in group.runs[0].record["configuration"].items() if k != "seed"}
    text = json.dumps(settings, indent=1, ensure_ascii=False)
    return f"<details><summary>Settings of {_(group.name)}</summary><pre>{_(text)}</pre></details>"


def _environment(run: Finished) -> str:
    return json.dumps([run.record.get(k, {}) for k in ("machine", "versions")], sort_keys=True)


def _environments(runs: Iterable[Finished]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a mark, M1, M2, ..., for each different machine and set of versions."""
    out: dict[str, tuple[str, dict[str, Any]]] = {}
    for run in runs:
        found = {k: run.record.get(k, {}) for k in ("machine", "versions")}
        out.setdefault(_environment(run), (f"M{len(out) + 1}", found))
    return out


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    keys = ("system", "processor", "cores", "torch_threads", "accelerator")
    both = {k: found["machine"].get(k) for k in keys} | found["versions"]
    return {k.replace("_", " "): "none" if v is None else v for k, v in both.items()}
