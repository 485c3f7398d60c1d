"""Ablations from real runs in few epochs: which runs, and tables against their metrics.csv."""

import numpy as np
import pandas as pd
import pytest

from experiments import ablate
from experiments.ablations import ABLATIONS, find_ablation
from experiments.collect import Finished, collect
from experiments.config import register_configs
from experiments.identity import run_path
from experiments.measures import MEASURES
from tests.experiments.test_report import finish
from tosca_avalanche.errors import RecordError

register_configs()
FAST = ("stream.classes_per_task=5", "backbone.weights=random")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("ablations")


def values(folder, metric):
    frame = pd.read_csv(folder / "metrics.csv")
    return frame[frame["metric"] == metric]["value"]


def rows(out, metric):
    table = pd.read_csv(out / "table.csv")
    return table[table["metric"] == metric].set_index("setting")


@pytest.mark.parametrize("arguments", [[], ["l2", "stream=digits"]])
def test_the_names_are_listed(arguments):
    with pytest.raises(SystemExit) as stopped:
        ablate.main(arguments)
    lines = str(stopped.value).splitlines()
    assert lines[0].startswith("error: ")
    assert [line.split()[0] for line in lines[1:]] == list(ABLATIONS)
    assert len(ABLATIONS) == 8 and all(len(line.split()) > 4 for line in lines[1:])


@pytest.mark.parametrize(
    ("name", "argument", "message"),
    [
        ("l1", "method.l1=0.1", "l1 sets method.l1 itself"),
        ("l1", "tosca.sparsity=l1", "l1 sets method.sparsity itself"),
        ("flow", "method.label=mine", "flow sets method.label itself"),
        ("protocols", "eval_order=shuffled", "protocols sets eval_order itself"),
        ("protocols", "method.eval_mb_size=9", "protocols sets method.eval_mb_size itself"),
        ("l1", "methods=[l2p]", "l1 takes no methods; it has its own runs"),
        ("cost", "selections=[oracle]", r"cost takes no selections; pass METHOD\.selection"),
        ("cost", "methods=[slda]", "put tosca among them"),
        ("tasks", "methods=[slda,nothing]", "nothing"),
        ("tasks", "tosca.train_epoch=1", r"did you mean 'method\.train_epochs'"),
        ("l1", "method.epochs=1", "has the key"),
        ("tsne", "seed=1", r"seeds=\[\.\.\.\]"),
    ],
)
def test_keys_that_do_not_go_together(name, argument, message):
    with pytest.raises(ValueError, match=message):
        ablate.plan(name, [argument])


def test_default_runs_are_shared_and_all_others_have_a_place_of_their_own():
    plans = {name: ablate.plan(name, ["seeds=[7]"]) for name in ABLATIONS}
    paths = {name: [str(run_path(s)) for _, s in runs] for name, runs in plans.items()}
    plain = "results/ablations/digits/tosca/per-image/seed-7"
    for name, own in paths.items():
        assert plain in own and len(set(own)) == len(own), name
    whole = {p: s for runs in plans.values() for p, s in ((str(run_path(s)), s) for _, s in runs)}
    for name, runs in plans.items():
        for _, settings in runs:
            assert settings == whole[str(run_path(settings))], name
    of = [run.removeprefix("results/ablations/digits/") for run in paths["protocols"]]
    assert of == [
        f"{run}/seed-7"
        for run in ("tosca/per-image", "tosca/batch48-sorted", "tosca/batch48-shuffled",
                    "tosca/oracle-task", "l2p/per-image", "l2p/batch16-sorted",
                    "l2p/batch16-shuffled")
    ]  # fmt: skip
    # d = 192
    assert [s["method"]["bottleneck"] for _, s in plans["bottleneck"]] == [24, None, 6]
    found = [(s["method"]["l1"], s["method"]["sparsity"]) for _, s in plans["l1"]]
    assert found == [(0, "l1"), (1e-4, "l1"), (5e-4, "l1"), (1e-3, "l1"), (5e-4, "proximal"),
                     (1e-3, "proximal"), (5e-3, "proximal")]  # fmt: skip


def test_a_key_of_one_method_stays_free_where_only_the_other_has_it_fixed():
    runs = ablate.plan("protocols", ["l2p.eval_mb_size=9", "seeds=[7]"])
    found = [s["method"]["eval_mb_size"] for _, s in runs]
    assert found == [48] * 4 + [9] * 3


def test_tasks_by_hand_from_the_metrics_of_two_seeds(root, capsys):
    arguments = [*FAST, "methods=[slda,simplecil]", "seeds=[1,2]", f"results_root={root}"]
    out = ablate.ablate("tasks", arguments)
    assert out == root / "tasks/digits"
    folders = {
        name: [root / f"digits/{name}/per-image/seed-{seed}" for seed in (1, 2)]
        for name in ("slda", "simplecil")
    }
    accuracy = rows(out, "avg_task_acc")
    assert list(accuracy.index) == ["slda", "simplecil"]
    seeds = {
        name: np.array([values(f, "avg_task_acc").item() for f in own])
        for name, own in folders.items()
    }
    best = max(seeds, key=lambda name: seeds[name].mean())
    share = rows(out, f"avg_task_acc / {best}")
    kept = rows(out, "kept")
    for name, own in seeds.items():
        line = accuracy.loc[name]
        assert line["mean"] == pytest.approx(own.mean())
        assert line["std_ddof1"] == pytest.approx(abs(own[0] - own[1]) / 2**0.5)
        assert (line["n"], line["protocol"]) == (2, "per-image")
        assert share.loc[name, "mean"] == pytest.approx((own / seeds[best]).mean())
        by_hand = []
        for folder in folders[name]:
            acc = pd.read_csv(folder / "metrics.csv").query("metric == 'acc'")
            r = acc.pivot(index="after_task", columns="eval_task", values="value").to_numpy()
            by_hand.append((r[1, 0] + r[1, 1]) / (r[0, 0] + r[1, 1]))
        assert kept.loc[name, "mean"] == pytest.approx(np.mean(by_hand))
    text = (out / "table.md").read_text()
    mean, std = 100 * seeds["slda"].mean(), 100 * seeds["slda"].std(ddof=1)
    assert f"| slda | per-image | 2 | {mean:.1f} ± {std:.1f} |" in text
    assert "backbone tiny_vit_64" in text and "Seeds 1, 2" in text
    assert (out / "tasks.png").stat().st_size > 0
    drawn = pd.read_csv(out / "tasks.csv").set_index(["panel", "setting"])["mean"]
    assert drawn["average task accuracy (%)", "slda"] == pytest.approx(mean)
    before = (out / "table.csv").read_bytes()
    capsys.readouterr()
    ablate.ablate("tasks", arguments)
    assert capsys.readouterr().out.count("is finished") == 4
    assert (out / "table.csv").read_bytes() == before


def test_l1_counts_zeros_of_real_modules_and_the_report_takes_its_runs(root):
    fast = [*FAST, "method.train_epochs=1", "seeds=[1]", f"results_root={root}"]
    out = ablate.ablate("l1", fast)
    zeros, small = rows(out, "sparsity_zero"), rows(out, "sparsity_1e-3")
    labels = ("tosca-l1-0", "tosca-l1-1e-4", "tosca", "tosca-l1-1e-3", "tosca-proximal-5e-4",
              "tosca-proximal-1e-3", "tosca-proximal-5e-3")  # fmt: skip
    for label, setting in zip(labels, zeros.index, strict=True):
        folder = root / f"digits/{label}/per-image/seed-1"
        assert zeros.loc[setting, "mean"] == pytest.approx(values(folder, "sparsity_zero").mean())
        assert small.loc[setting, "mean"] == pytest.approx(values(folder, "sparsity_1e-3").mean())
        assert pd.isna(zeros.loc[setting, "std_ddof1"])
    # soft-thresholding alone gives exact zeros, and more of them with more of it
    assert zeros["mean"].iloc[4] > 0.001 > zeros["mean"].iloc[:4].max()
    assert zeros["mean"].iloc[5] > zeros["mean"].iloc[4]
    sections, refused = collect(root)
    assert not refused
    assert set(labels) <= {g.runs[0].record["method"] for s in sections for g in s.groups}


def test_cost_stands_beside_what_was_published(root):
    fast = [*FAST, "tosca.train_epochs=1", "seeds=[1]", f"results_root={root}"]
    out = ablate.ablate("cost", [*fast, "methods=[simplecil,tosca]"])
    module, rows_of_head = 4 * 192 * 12 + 3 * 192 + 12, 5 * 192
    assert rows(out, "params_total")["mean"].tolist() == [
        10 * 192 + 10, 2 * module + 2 * rows_of_head + 1
    ]  # fmt: skip
    assert rows(out, "params_last_task").loc["tosca", "mean"] == module + rows_of_head
    assert rows(out, "params_trainable / tosca")["mean"].tolist() == [0, 1]
    text = (out / "table.md").read_text()
    assert "| published | – | – | – | – | about 8 | – | – | about 2.5 | – |" in text
    folder = root / "digits/simplecil/per-image/seed-1"
    seconds = rows(out, "train_s").loc["simplecil", "mean"]
    assert seconds == pytest.approx(values(folder, "train_s").sum())
    assert rows(out, "total_s").loc["simplecil", "mean"] > seconds


def test_ratios_and_differences_are_taken_seed_by_seed():
    frame = pd.DataFrame(
        [("a", 1, 2.0), ("a", 2, 4.0), ("b", 1, 6.0), ("b", 2, 4.0), ("c", 1, None), ("c", 2, 0.0)],
        columns=["setting", "seed", "value"],
    ).assign(metric="m", protocol="p")
    found = ablate.against(frame, ("m",), "a", "/")
    assert found["value"].fillna(-1).tolist() == [1, 1, 3, 1, -1, 0]
    assert found["metric"].eq("m / a").all()
    assert ablate.against(frame, ("m",), "c", "/")["value"].isna().all()  # nothing over nothing
    less = ablate.against(frame, ("m",), "a", "-")
    assert less["value"].fillna(-9).tolist() == [0, 0, 4, 0, -9, -4]
    assert less["metric"].eq("m - a").all()


def test_measures_of_a_hand_made_run(tmp_path):
    path = finish(tmp_path, right=(9, 5, 8))  # R: 0.9; 0.5, 0.8
    timings = {"train_s": [1.0, 2.0], "eval_s": [0.5, 0.25]}
    record = {"timings": timings, "configuration": {"method": {"first_epochs": 7}}}
    run = Finished(path, record, pd.read_csv(path / "metrics.csv"))
    found = {name: MEASURES[name].value(run) for name in ("kept", "A_last", "train_s", "total_s",
             "avg_task_acc", "params_total", "module_numbers", "sparsity_zero")}  # fmt: skip
    expected = {"kept": 1.3 / 1.7, "A_last": 0.65, "train_s": 3, "total_s": 3.75,
                "avg_task_acc": 0.85, "params_total": 200, "module_numbers": None,
                "sparsity_zero": None}  # fmt: skip
    assert found == {k: v if v is None else pytest.approx(v) for k, v in expected.items()}
    zeros = pd.DataFrame({"metric": "sparsity_zero", "value": [0.5, 0.25, None], "n": [8, 8, 0],
                          "after_task": range(3)})  # fmt: skip
    run = Finished(path, {}, zeros)
    assert MEASURES["sparsity_zero"].value(run) == 0.375
    assert MEASURES["module_numbers"].value(run) == 8


def test_runs_of_two_backbones_are_no_table(tmp_path, monkeypatch):
    other = {"name": "tiny", "fingerprint": "b" * 64, "transform": {"crop": 1}}
    folders = [finish(tmp_path), finish(tmp_path, method="slda", backbone=other)]
    monkeypatch.setattr(ablate, "execute_all", lambda settings: folders)
    runs = ablate.plan("tasks", ["methods=[tosca,slda]"])
    with pytest.raises(RecordError, match=r"slda.*has backbone 'tiny, fingerprint bbb.*aaa"):
        ablate.measured(find_ablation("tasks"), runs)
