"""The numbers of the pages are those of the files in results/."""

import re
from pathlib import Path

import pandas as pd
import pytest

from experiments.collect import collect
from experiments.overview import markdown

ROOT = Path(__file__).parents[1]
COMPARISON = ROOT / "results/comparison"


def table_after(text, mark):
    """Return the rows of the first Markdown table after a mark."""
    lines = text[text.index(mark) :].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    body = lines[start:]
    end = next((i for i, line in enumerate(body) if not line.startswith("|")), len(body))
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in body[:end]]
    return [row for row in rows if not set(row[0]) <= set("-:")]


def test_the_table_of_the_readme_is_that_of_the_runs():
    sections, refused = collect(COMPARISON)
    assert not refused
    overview = (COMPARISON / "report/overview.md").read_text()
    assert markdown(sections) == overview
    readme = (ROOT / "README.md").read_text()
    assert table_after(readme, "<!-- overview -->") == table_after(overview, "## A_last")


@pytest.mark.parametrize("page", ["README.md", "results/README.md"])
def test_tables_of_protocols(page):
    summary = pd.read_csv(COMPARISON / "report/summary.csv")
    own = summary[(summary["method"] == "tosca") & (summary["metric"] == "A_last")]
    protocols = ("per-image", "batch48-sorted", "batch48-shuffled", "oracle-task")
    head, *rows = table_after((ROOT / page).read_text(), "| protocol |")
    for protocol, (_, *shown) in zip(protocols, rows, strict=True):
        by = own[own["protocol"] == protocol].set_index("stream")
        assert shown == [f"{100 * by['mean'][s]:.1f} ± {100 * by['std'][s]:.1f}" for s in head[1:]]


def test_every_file_that_a_page_names_is_there():
    for page in ("README.md", "results/README.md", "docs/selection.md", "docs/scale.md"):
        text = (ROOT / page).read_text()
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert ((ROOT / page).parent / link).exists(), (page, link)
