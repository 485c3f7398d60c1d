"""All methods on all streams: means, stars and notes by hand."""

from pathlib import Path

import numpy as np
import pytest

from experiments import report
from experiments.collect import collect
from experiments.overview import LEGEND, markdown, overviews
from tosca_avalanche.metrics import Score
from tosca_avalanche.records import RunFolder, accuracy_rows, row

BACKBONE = {"name": "tiny", "fingerprint": "a" * 64, "transform": {"crop": 1}}


def finish(root, stream, method, right, seed=1, protocol="per-image", backbone=BACKBONE, **own):
    """Write a run of two tasks of ten images: right after task 0, then on each."""
    correct = np.array([[right[0], 0], right[1:]])
    head = {"run_id": f"{method}-{protocol}-{seed}", "method": method, "stream": stream,
            "seed": seed, "protocol": protocol}  # fmt: skip
    rows = accuracy_rows(correct, np.array([[10, 0], [10, 10]]))
    rows.append(row("train_s", Score(1.5, 1), 1))
    record = {**head, "finished": "2026-01-01T00:00:00+00:00", "backbone": backbone,
              "machine": {}, "versions": {}, "task_sizes": [2, 2],
              "class_names": ["a", "b", "c", "d"]}  # fmt: skip
    settings = {"method": {"name": method, "label": None, **own}, "seed": seed,
                "backbone": {"precision": "float32"}}  # fmt: skip
    folder = RunFolder(root / stream / method / protocol / f"seed-{seed}", settings)
    folder.finish(record, [{**head, **r} for r in rows], {})


@pytest.fixture
def root(tmp_path):
    finish(tmp_path, "one", "tosca", (9, 5, 8), 1)  # A_last 13 / 20
    finish(tmp_path, "one", "tosca", (8, 5, 4), 2)  # 9 / 20
    finish(tmp_path, "one", "tosca", (9, 9, 9), 1, "oracle-task")
    finish(tmp_path, "one", "ease", (9, 9, 9), train_epochs=3, lr=0.025)
    finish(tmp_path, "two", "tosca", (9, 5, 9))
    finish(tmp_path, "two", "dualprompt", (9, 2, 4), g_blocks=[0, 1])
    return tmp_path


def test_means_stars_and_notes(root):
    sections, _ = collect(root)
    found = overviews(sections)
    assert [title.partition(",")[0] for title, *_ in found] == [
        "A_last (%)", "A-bar (%)", "forgetting (points)",
    ]  # fmt: skip
    last, bar, forgetting = (rows for _, rows, _ in found)
    assert last == [
        ["method", "one", "two"],
        ["ease", "90.0*", "–"],
        ["tosca", "55.0 ± 14.1", "70.0"],
        ["dualprompt", "–", "30.0"],
    ]
    assert {r[0]: r[1:] for r in bar}["tosca"] == ["70.0 ± 10.6", "80.0"]
    # best 9 and 8, then 5: the method that forgets least comes first
    assert forgetting[1:] == [
        ["ease", "0.0*", "–"],
        ["tosca", "35.0 ± 7.1", "40.0"],
        ["dualprompt", "–", "70.0"],
    ]
    assert found[0][2] == ["ease: train_epochs=3 (one)"]


def test_where_it_is_written(root):
    report.write_report(root, root / "report", *collect(root))
    text = (root / "report/overview.md").read_text()
    assert "| tosca | 55.0 ± 14.1 | 70.0 |" in text and LEGEND in text
    assert text.count("- ease: train_epochs=3 (one)") == 1
    page = (root / "report/report.html").read_text()
    assert "All methods on all streams" in page and "<td>55.0 ± 14.1</td>" in page


def test_one_stream_or_another_backbone_is_no_overview(tmp_path: Path):
    finish(tmp_path, "one", "tosca", (9, 5, 8))
    other = {**BACKBONE, "fingerprint": "b" * 64}
    finish(tmp_path, "two", "tosca", (9, 5, 8), backbone=other)
    assert markdown(collect(tmp_path)[0]) == ""
    report.write_report(tmp_path, tmp_path / "report", *collect(tmp_path))
    assert not (tmp_path / "report/overview.md").exists()
    assert "All methods on all" not in (tmp_path / "report/report.html").read_text()
