"""Tables and plot of the study of selection rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.selection_rules import ROUTERS, RULES
from experiments.selection_training import TRAININGS
from tosca_avalanche.files import atomic_write, write_text
from tosca_avalanche.plots.style import new_figure, save, series_style

PRESET, CONTROL, WINNER = "+ trained rows (preset)", "SLDA alone", "gaussian-ridge"
TRAINED_RULES = ("entropy", "own entropy", "SLDA x modules", WINNER)


def write_report(runs: pd.DataFrame, out: Path) -> None:
    """Write summary.md, summary.csv and gain.png for the runs that there are."""
    summary = summarised(runs)
    atomic_write(out / "summary.csv", lambda p: summary.to_csv(p, index=False))
    parts = []
    for part in [p for p in ("validation", "test") if p in set(summary["part"])]:
        own = summary[summary["part"] == part]
        seeds = int(own["seeds"].max())
        what = "held-out training images" if part == "validation" else "test images"
        parts.append(f"## {part.capitalize()}: {what}, {seeds} seeds\n")
        for metric, title in (
            ("acc", "A_last (%)"),
            ("selection_acc", "right module chosen (%)"),
            ("ece", "expected calibration error (%)"),
        ):
            parts.append(f"{title}, training `{PRESET}`:\n\n{by_rule(own, metric)}\n")
        parts.append(f"A_last (%) by training:\n\n{by_training(own)}\n")
        parts.append(f"Gains (points, paired by seed):\n\n{gains(runs, part)}\n")
    write_text(out / "summary.md", "\n".join(parts))
    if "test" in set(runs["part"]):
        plot_gain(runs, out / "gain.png")


def summarised(runs: pd.DataFrame) -> pd.DataFrame:
    """Return mean and standard deviation (ddof 1) over seeds of every metric."""
    long = runs.melt(
        id_vars=["part", "stream", "seed", "training", "rule"],
        value_vars=["acc", "selection_acc", "ece"],
        var_name="metric",
    )
    grouped = long.groupby(["part", "stream", "training", "rule", "metric"], sort=False)["value"]
    out: pd.DataFrame = grouped.agg(["mean", "std", "count"]).reset_index()
    return out.rename(columns={"count": "seeds"})


def of_training(table: pd.DataFrame, training: str) -> pd.DataFrame:
    """Return the rows of a training, with those of rules in which the modules have no say."""
    return table[(table["training"] == training) | table["rule"].isin(ROUTERS)]


def by_rule(summary: pd.DataFrame, metric: str) -> str:
    """Return rules x streams under the preset's training."""
    own = of_training(summary[summary["metric"] == metric], PRESET)
    return _markdown(own, "rule", list(RULES))


def by_training(summary: pd.DataFrame) -> str:
    """Return training and rule x streams."""
    own = summary[(summary["metric"] == "acc") & summary["rule"].isin(TRAINED_RULES)].copy()
    own["training, rule"] = own["training"] + ", " + own["rule"]
    order = [f"{t}, {r}" for r in TRAINED_RULES for t in TRAININGS]
    return _markdown(own, "training, rule", order)


def paired(runs: pd.DataFrame, part: str, one: str, other: str) -> pd.DataFrame:
    """Return by stream and seed how many points rule ``one`` lies above ``other``."""
    own = of_training(runs[runs["part"] == part], PRESET)
    wide = own.pivot_table(index=["stream", "seed"], columns="rule", values="acc", sort=False)
    return (100 * (wide[one] - wide[other])).rename("points").reset_index()


def gains(runs: pd.DataFrame, part: str) -> str:
    """Return the differences that the study is about, by stream."""
    rows = {}
    for one, other in (
        (WINNER, CONTROL),
        ("SLDA x modules", CONTROL),
        ("Gaussians alone", CONTROL),
        ("Gaussians + ridge alone", "Gaussians alone"),
        (WINNER, "Gaussians + ridge alone"),
        (WINNER, "entropy"),
    ):
        found = paired(runs, part, one, other).groupby("stream", sort=False)["points"]
        rows[f"{one} - {other}"] = {
            stream: f"{own.mean():+.1f} ± {own.std():.1f}" for stream, own in found
        }
    return _lines(pd.DataFrame(rows).T, "difference")


def plot_gain(runs: pd.DataFrame, path: Path) -> None:
    """Draw how far each rule lies above the control on test images, mean and every seed."""
    rules = [r for r in RULES if r != CONTROL]
    figure, axes = new_figure(8.5, 0.36 * len(rules) + 2.0)
    streams = list(dict.fromkeys(runs[runs["part"] == "test"]["stream"]))
    for i, stream in enumerate(streams):
        shift = (i - (len(streams) - 1) / 2) * 0.14
        style = series_style(i)
        for place, rule in enumerate(rules):
            found = paired(runs, "test", rule, CONTROL)
            own = found[found["stream"] == stream]["points"].to_numpy()
            height = np.full(len(own), place + shift)
            axes.plot(own, height, ".", color=style["color"], alpha=0.4, markersize=3)
            axes.plot(
                own.mean(),
                place + shift,
                marker=style["marker"],
                color=style["color"],
                linestyle="none",
                markersize=5,
                label=stream if place == 0 else None,
            )
    axes.axvline(0, color="0.4", linewidth=1)
    axes.set_yticks(range(len(rules)), rules)
    axes.invert_yaxis()
    axes.set_xlabel(f"A_last minus that of {CONTROL} (points; dots: single seeds)")
    axes.set_title("Selection rules per image, modules trained by the preset", fontsize=11)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.35, -0.09), ncol=3, frameon=False)
    save(figure, path)


def _markdown(own: pd.DataFrame, column: str, order: list[str]) -> str:
    text = [f"{100 * m:.1f} ± {100 * s:.1f}" for m, s in zip(own["mean"], own["std"], strict=True)]
    cells = own.assign(cell=text)
    wide = cells.pivot_table(
        index=column, columns="stream", values="cell", aggfunc="first", sort=False
    )
    return _lines(wide.reindex([r for r in order if r in wide.index]), column)


def _lines(wide: pd.DataFrame, column: str) -> str:
    head = [column, *wide.columns]
    lines = [f"| {' | '.join(map(str, head))} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in wide.fillna("–").itertuples(name=None)]
    return "\n".join(lines)
