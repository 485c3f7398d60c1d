"""The report of a folder of results: means by hand, what stands apart, what is left out."""

import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from experiments import report
from experiments.collect import collect
from tosca_avalanche.metrics import Score
from tosca_avalanche.records import RunFolder, accuracy_rows, row

TOTAL = np.array([[10, 0], [10, 10]])


def finish(root, seed=1, right=(9, 5, 8), method="tosca", protocol="per-image", tasks=2, **other):
    """Write a run of two tasks of ten test images: right after task 0, then on each."""
    correct = np.array([[right[0], 0], right[1:]])[:tasks, :tasks]
    head = {"run_id": f"{method}-{protocol}-{seed}", "method": method, "stream": "toy",
            "seed": seed, "protocol": protocol}  # fmt: skip
    rows = accuracy_rows(correct, TOTAL[:tasks, :tasks])
    rows += [row("train_s", Score(1.5, 1), t) for t in range(tasks)]
    rows += [row("params_total", Score(100 * (t + 1), 1), t) for t in range(tasks)]
    record = {
        **head,
        "finished": "2026-01-01T00:00:00+00:00",
        "backbone": {"name": "tiny", "fingerprint": "a" * 64, "transform": {"crop": 1}},
        "machine": {"processor": "this one"},
        "versions": {"torch": "2"},
        "task_sizes": [2, 2],
        "class_names": ["a", "b", "c", "d"],
        **{k: v for k, v in other.items() if k in ("backbone", "machine")},
    }
    settings = {"method": {"lr": other.get("lr", 0.1)}, "backbone": {"precision": "float32"},
                "seed": seed}  # fmt: skip
    folder = RunFolder(root / "toy" / method / protocol / f"seed-{seed}", settings)
    counts = [(t, i, m, 5) for t in range(2) for i in range(t + 1) for m in range(t + 1)]
    table = pd.DataFrame(counts, columns=["after_task", "task", "module", "count"])
    tables = {"selection.csv": table} if method == "tosca" else {}
    folder.finish(record, [{**head, **r} for r in rows], tables)
    return folder.path


def written(root):
    sections, refused = collect(root)
    report.write_report(root, root / "report", sections, refused)
    text = (root / "report/report.html").read_text()
    return dict(refused), text, pd.read_csv(root / "report/summary.csv")


def test_means_tables_and_a_page_that_needs_nothing_else(tmp_path):
    finish(tmp_path, 1)  # A_last 13 / 20
    finish(tmp_path, 2, right=(8, 5, 4))  # 9 / 20
    finish(tmp_path, 1, method="a<b>&_c")
    finish(tmp_path, 1, protocol="batch48-sorted")
    refused, text, summary = written(tmp_path)
    assert not refused
    last = summary[(summary["metric"] == "A_last") & (summary["method"] == "tosca")]
    last = last.set_index("protocol").loc["per-image"]
    assert (last["mean"], last["n"], last["seed_list"]) == (pytest.approx(0.55), 2, "1 2")
    assert last["std"] == pytest.approx(0.2 / 2**0.5)  # ddof 1
    out = tmp_path / "report"
    assert "| tosca | 2 | 70.0 ± 10.6 | 55.0 ± 14.1 |" in (out / "summary.md").read_text()
    tex = (out / "summary.tex").read_text()
    assert r"tosca & 2 & 70.0 $\pm$ 10.6 & 55.0 $\pm$ 14.1 &" in tex
    assert r"a<b>\&\_c & 1" in tex and tex.count(r"\begin{tabular}") == 2
    assert "a&lt;b&gt;&amp;_c" in text and "<b>&_" not in text
    # three of the stream, one of the method with two protocols, a heat map each, the choices of two
    assert text.count("<svg") == text.count("</svg>") == 4 + 3 + 2
    assert len(list(out.rglob("*.svg"))) == 9
    drawn = {n: pd.read_csv(out / f"figures/toy/{n}.csv") for n in ("accuracy", "protocols")}
    assert set(drawn["accuracy"]["protocol"]) == {"per-image"}
    assert set(drawn["protocols"]["protocol"]) == {"per-image", "batch48-sorted"}
    assert set(drawn["protocols"]["method"]) == {"tosca"}
    assert not re.search(r"<script|<link|<img|@import|(src|href)=\"(?!#|data:)", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= set(ids)
    assert "55.0 ± 14.1" in text and "this one" in text and "the task leaks" in text
    again = written(tmp_path)[1]
    assert again == text


def test_another_backbone_stands_apart(tmp_path):
    finish(tmp_path, 1)
    other = {"name": "tiny", "fingerprint": "b" * 64, "transform": {"crop": 1}}
    finish(tmp_path, 1, method="simplecil", backbone=other)
    refused, text, summary = written(tmp_path)
    assert not refused
    of = summary.groupby("method")["backbone"].unique().map(list).to_dict()
    assert of == {
        "simplecil": ["tiny, fingerprint bbbbbbbbbbbb"],
        "tosca": ["tiny, fingerprint aaaaaaaaaaaa"],
    }
    assert "differ in backbone" in text
    assert "toy – tiny, fingerprint aaaaaaaaaaaa" in text
    assert (tmp_path / "report/figures/toy/accuracy.svg").exists()
    assert (tmp_path / "report/figures/toy-2/accuracy.svg").exists()


def test_what_can_not_be_averaged_is_left_out_by_name(tmp_path):
    finish(tmp_path, 1, method="simplecil")
    for seed, lr in ((1, 0.1), (2, 0.2)):
        finish(tmp_path, seed, lr=lr)
    finish(tmp_path, 1, method="short", tasks=1)
    moved = finish(tmp_path, 1, method="moved")
    shutil.copytree(moved, tmp_path / "toy/moved/oracle-task/seed-1")
    lost = finish(tmp_path, 1, method="lost")
    (lost / "metrics.csv").unlink()
    (finish(tmp_path, 1, method="broken") / "run.json").write_text("{")
    RunFolder(tmp_path / "toy/simplecil/per-image/seed-2", {}).save_state(1, {}, {})
    finish(tmp_path, 1, method="half.partial")
    refused, text, summary = written(tmp_path)
    assert set(summary["method"]) == {"simplecil", "moved"}
    expected = {
        "toy/tosca/per-image/seed-1": r"settings are mixed.*method\.lr is 0\.2 there, 0\.1 here",
        "toy/tosca/per-image/seed-2": "settings are mixed",
        "toy/short/per-image/seed-1": "1 of 2 tasks",
        "toy/moved/oracle-task/seed-1": "its protocol is 'per-image'",
        "toy/lost/per-image/seed-1": "can't be read as a table",
        "toy/broken/per-image/seed-1": "can't be read as JSON",
        "toy/simplecil/per-image/seed-2": "not finished: 1 tasks are done",
        "toy/half": "not finished: 0 tasks",
    }
    assert set(refused) == set(expected)
    for place, why in expected.items():
        assert re.search(why, refused[place]), (place, refused[place])
        assert place in text


def test_the_command(tmp_path, capsys):
    with pytest.raises(SystemExit, match="holds no finished run"):
        report.main([str(tmp_path)])
    finish(tmp_path, 1)
    finish(tmp_path, 2, machine={"processor": "another"})
    report.main([str(tmp_path), "--out", str(tmp_path / "elsewhere")])
    assert capsys.readouterr().out.strip() == str(tmp_path / "elsewhere/report.html")
    text = (tmp_path / "elsewhere/report.html").read_text()
    assert "Times of different machines" in text and "<td>M2</td>" in text


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 400])
def test_the_page_fits_a_browser(width, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no Chromium on this machine")
    finish(tmp_path, 1, method="a_method_with_a_name_that_is_rather_long_for_a_phone")
    written(tmp_path)
    (tmp_path / "frame.html").write_text(
        f"<iframe style='width:{width}px;height:900px;border:0' src='report/report.html' "
        "onload='let d = this.contentDocument; document.title = "
        '[d.documentElement.scrollWidth, d.querySelectorAll("svg").length, '
        'Math.max(...[...d.querySelectorAll("svg")].map(s => s.getBoundingClientRect().right))]\'>'
    )
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu",
               "--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}",
               "--virtual-time-budget=5000", "--dump-dom"]  # fmt: skip
    done = subprocess.run(
        [*command, (tmp_path / "frame.html").as_uri()], capture_output=True, text=True, timeout=120
    )
    found = re.search(r"<title>(\d+),(\d+),([\d.]+)</title>", done.stdout)
    assert found, done.stdout[-500:] + done.stderr[-500:]
    assert int(found[1]) <= width and int(found[2]) == 4 and float(found[3]) <= width
