"""The report of the benchmark: JSON, a table with the goals, a plot with its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tosca_avalanche.files import write_json, write_text
from tosca_avalanche.plots.style import save, save_table


def rows_of(r: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (what, measured, goal) for each question of the benchmark."""
    runs, evaluation, growth = r["runs"], r["evaluation"], r["growth"]
    authors, second = runs["authors"], runs["second_seed"]
    return [
        (
            "whole run, authors' loop",
            f"{authors['seconds']:.1f} s, {authors['images_passed']:,} passes",
            "",
        ),
        (
            "whole run, cold store",
            f"{runs['cold']['seconds']:.1f} s, {runs['cold']['images_passed']:,} passes: "
            f"{runs['cold']['times_faster']:.0f}x faster",
            "≥ 10x",
        ),
        (
            "whole run, with the store",
            f"{runs['warm']['seconds']:.1f} s: {runs['warm']['times_faster']:.0f}x faster",
            "≥ 50x",
        ),
        (
            "second seed",
            f"{second['seconds']:.1f} s, {second['images_passed']:,} passes",
            "0 passes",
        ),
        (
            "evaluation, 100 modules / (backbone pass + 1 module)",
            f"{evaluation['ratio_100']:.2f}x",
            "≤ 1.2x",
        ),
        (
            "evaluation, 500 modules / 100 modules",
            f"{evaluation['growth_100_to_500']:.1f}x",
            "linear in modules x classes: 25x",
        ),
        (
            "training iteration / plain torch loop",
            f"{r['iteration']['ratio']:.2f}x ({r['iteration']['avalanche_ms']:.2f} ms)",
            "≤ 1.5x",
        ),
        (
            "extraction from tensors / bare timm forward (rate)",
            f"{r['extraction']['tensors_ratio']:.2f}x",
            "≥ 0.9x",
        ),
        (
            "extraction from images, resized / bare timm forward (rate)",
            f"{r['extraction']['images_ratio']:.2f}x",
            "",
        ),
        ("bytes per task (one class)", f"{growth['bytes_per_task']:,}", ""),
        (
            "time to add a task at 1 / at 500 tasks",
            f"{growth['add_task_ms_at_1']:.2f} / {growth['add_task_ms_at_500']:.2f} ms",
            "flat",
        ),
        (
            "peak memory that 1 / 100 / 500 modules add",
            f"{growth['peak_mb_at_1']:.0f} / {growth['peak_mb_at_100']:.0f} / "
            f"{growth['peak_mb_at_500']:.0f} MB",
            "",
        ),
    ]


def write_report(out: Path, result: dict[str, Any]) -> None:
    """Write bench.json, bench.md, bench.png and bench.csv, and print the table."""
    write_json(out / "bench.json", result)
    lines = ["| what | measured | goal |", "|---|---|---|"]
    lines += [f"| {what} | {value} | {goal} |" for what, value, goal in rows_of(result)]
    machine = result["machine"]
    text = (
        f"{result['stream']}, {result['settings']['epochs']} epochs, tiny_vit_64, "
        f"{machine['processor']}, {machine['cores']} cores\n\n" + "\n".join(lines) + "\n"
    )
    write_text(out / "bench.md", text)
    print("\n" + text)
    runs = result["runs"]
    names = {
        "authors": "authors' loop",
        "cold": "cold store",
        "warm": "with the store",
        "second_seed": "second seed",
    }
    frame = pd.DataFrame(
        [
            {"run": label, "seconds": runs[k]["seconds"], "images_passed": runs[k]["images_passed"]}
            for k, label in names.items()
        ]
    )
    figure = Figure(figsize=(7, 3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    bars = axes.barh(frame["run"], frame["seconds"], color="#0072B2")
    labels = [
        f" {s:.1f} s, {n:,} passes"
        for s, n in zip(frame["seconds"], frame["images_passed"], strict=True)
    ]
    axes.bar_label(bars, labels)
    axes.set_xscale("log")
    axes.set_xlim(frame["seconds"].min() / 2, frame["seconds"].max() * 12)
    axes.invert_yaxis()
    axes.set_xlabel("seconds for the whole run (log scale)")
    axes.set_title(f"{result['stream']}: train and test after every task")
    save(figure, out / "bench.png")
    save_table(frame, out / "bench.png")
