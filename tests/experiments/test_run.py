"""Runs from start to finish on the real stream and backbone, in few epochs."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from safetensors.torch import save_file

from experiments import compare
from experiments.config import compose, register_configs, to_settings
from experiments.run import Run, execute
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import RecordError
from tosca_avalanche.files import read_json

register_configs()
TIMES = ("train_s", "eval_ms_per_image")
FAST = ("stream.classes_per_task=[4,4,2]", "backbone.weights=random")


def settings(root, *overrides):
    return to_settings(compose([f"results_root={root}", *FAST, *overrides]))


def numbers(folder):
    frame = pd.read_csv(folder / "metrics.csv")
    return frame[~frame["metric"].isin(TIMES)].to_csv()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    return {
        name: execute(settings(root, f"method={name}", *extra))
        for name, extra in (("tosca", ["method.train_epochs=1"]), ("simplecil", []))
    }


def test_what_a_run_writes(finished):
    folder = finished["tosca"]
    frame = pd.read_csv(folder / "metrics.csv")
    names = {"acc", "A_t", "A_bar", "A_last", "forgetting_max", "forgetting_after_learning", "bwt",
             "avg_task_acc", "selection_acc", "ece", "sparsity_zero", "sparsity_1e-3",
             "params_total", "params_trainable", "passes_per_image", "train_s",
             "eval_ms_per_image"}  # fmt: skip
    assert set(frame["metric"]) == names
    record = json.loads((folder / "run.json").read_text())
    assert record["protocol"] == "per-image" and record["task_sizes"] == [4, 4, 2]
    assert len(record["backbone"]["fingerprint"]) == 64
    assert record["parameters"]["backbone"] == 2_719_296
    module, rows = 4 * 192 * 12 + 3 * 192 + 12, 192
    assert record["parameters"]["per_task"] == [module + 4 * rows + 1, module + 4 * rows,
                                                module + 2 * rows]  # fmt: skip
    trained = frame[frame["metric"] == "params_trainable"]["value"].tolist()
    assert trained == [module + 4 * rows + 1, module + 4 * rows + 1, module + 2 * rows + 1]
    table = pd.read_csv(folder / "selection.csv")
    last = table[table["after_task"] == 2]
    assert last["count"].sum() == 450
    bins = pd.read_csv(folder / "reliability.csv")
    assert list(bins) == ["after_task", "bin", "images", "right", "sum_of_confidence"]
    last_bins = bins[bins["after_task"] == 2]
    assert last_bins["images"].sum() == 450 and len(last_bins) == 15
    a_last = frame[frame["metric"] == "A_last"]["value"].item()
    assert last_bins["right"].sum() / 450 == pytest.approx(a_last)
    gap = (last_bins["right"] - last_bins["sum_of_confidence"]).abs().sum() / 450
    ece = frame[(frame["metric"] == "ece") & (frame["after_task"] == 2)]
    assert ece["value"].item() == pytest.approx(gap) and ece["n"].item() == 450
    right = last[last["task"] == last["module"]]["count"].sum() / 450
    own = frame[(frame["metric"] == "selection_acc") & (frame["after_task"] == 2)]
    assert own["value"].item() == pytest.approx(right)


def test_simplecil_has_no_modules(finished):
    frame = pd.read_csv(finished["simplecil"] / "metrics.csv")
    assert not {"selection_acc", "sparsity_zero"} & set(frame["metric"])
    assert not (finished["simplecil"] / "selection.csv").exists()
    assert "ece" not in set(frame["metric"])
    assert not (finished["simplecil"] / "reliability.csv").exists()
    assert frame[frame["metric"] == "params_trainable"]["value"].eq(0).all()


def test_a_finished_run_is_not_repeated_and_other_settings_are_refused(finished, capsys):
    root = finished["tosca"].parents[3]
    before = (finished["tosca"] / "run.json").stat().st_mtime_ns
    execute(settings(root, "method.train_epochs=1"))
    assert "is finished" in capsys.readouterr().out
    assert (finished["tosca"] / "run.json").stat().st_mtime_ns == before
    with pytest.raises(RecordError, match=r"method\.train_epochs is 1 there, 2 here"):
        execute(settings(root, "method.train_epochs=2"))


def test_other_weights_in_the_same_file_are_another_run(tmp_path, capsys):
    path = tmp_path / "own.safetensors"
    words = ("method=simplecil", f"backbone.weights={path}")
    module = load_backbone("tiny_vit_64").module
    save_file(module.state_dict(), path)
    folder = execute(settings(tmp_path, *words))
    assert read_json(folder / "run.json")["configuration"]["backbone"]["weights"] == str(path)
    os.utime(path, (0, 0))
    assert execute(settings(tmp_path, *words)) == folder
    assert "is finished" in capsys.readouterr().out
    save_file({k: 1.5 * v for k, v in module.state_dict().items()}, path)
    with pytest.raises(RecordError, match="weights_sha256"):
        execute(settings(tmp_path, *words))
    path.unlink()
    assert execute(settings(tmp_path, *words)) == folder, "results outlive the weights"


@pytest.mark.parametrize("method", ["tosca", "simplecil"])
def test_an_interrupted_run_ends_with_the_same_numbers(method, finished, tmp_path, monkeypatch):
    extra = ["method.train_epochs=1"] if method == "tosca" else []
    mine = settings(tmp_path, f"method={method}", *extra)
    learn = Run.learn

    def interrupted(self, t):
        if t == 2:
            raise KeyboardInterrupt
        learn(self, t)

    monkeypatch.setattr(Run, "learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(mine)
    monkeypatch.setattr(Run, "learn", learn)
    learned = []
    monkeypatch.setattr(Run, "learn", lambda self, t: (learned.append(t), learn(self, t)))
    folder = execute(mine)
    assert learned == [2]
    assert numbers(folder) == numbers(finished[method])


def test_protocols_share_the_training_and_not_the_folder(finished, tmp_path):
    folders = {}
    for protocol in ("entropy-batch", "oracle"):
        mine = settings(tmp_path, "method.train_epochs=1", f"method.selection={protocol}")
        folders[protocol] = execute(mine)
    assert folders["entropy-batch"].parts[-2] == "batch48-sorted"
    assert folders["oracle"].parts[-2] == "oracle-task"
    oracle = pd.read_csv(folders["oracle"] / "metrics.csv")
    assert oracle[oracle["metric"] == "selection_acc"]["value"].eq(1).all()
    # one task: no choice to make, so all protocols agree
    first = [
        frame[(frame["metric"] == "A_t") & (frame["after_task"] == 0)]["value"].item()
        for frame in (
            pd.read_csv(f / "metrics.csv") for f in (finished["tosca"], *folders.values())
        )
    ]
    assert np.ptp(first) == 0


def test_compare(finished, monkeypatch, capsys):
    root = finished["tosca"].parents[3]
    arguments = ["methods=[tosca,simplecil]", "seeds=[1993]", f"results_root={root}",
                 "method.train_epochs=1", *FAST]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["compare", *arguments])
    compare.main()
    out = capsys.readouterr().out
    assert "| simplecil | 1 |" in out and "| tosca | 1 |" in out and "protocol per-image" in out
    written = {p.name for p in (root / "digits").iterdir()}
    assert {"summary.csv", "summary.md", "accuracy.png", "accuracy.csv", "forgetting.png",
            "forgetting.csv"} <= written  # fmt: skip
    assert (finished["tosca"].parent / "selection.png").exists()
    assert (finished["tosca"].parent / "reliability.png").exists()
    assert not (finished["simplecil"].parent / "reliability.png").exists()
    summary = pd.read_csv(root / "digits/summary.csv")
    frame = pd.read_csv(finished["tosca"] / "metrics.csv")
    for metric in ("A_bar", "A_last"):
        ours = summary[(summary["method"] == "tosca") & (summary["metric"] == metric)]
        assert ours["mean"].item() == pytest.approx(
            frame[frame["metric"] == metric]["value"].item()
        )


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("methods=[tosca,simplecli]", "did you mean 'simplecil'"),
        ("method=tosca", r"methods=\[...\]"),
        ("method.nothing=3", "has the key 'method.nothing'"),
        ("sedes=[1]", "unknown key 'sedes'"),
        ("tosca.epochs=3", "unknown key 'method.epochs'"),
        ("slda.shrinkage=1", "unknown key 'slda.shrinkage'"),
    ],
)
def test_compare_refuses(argument, says):
    with pytest.raises(ValueError, match=says):
        compare.plan([argument])


def test_keys_that_have_one_value_are_no_keys(tmp_path):
    for method, key in (("simplecil", "train_epochs"), ("slda", "train_views"),
                        ("aper", "train_epochs"), ("joint", "selection")):  # fmt: skip
        with pytest.raises(ValueError, match=f"unknown key 'method.{key}'"):
            compose([f"method={method}", f"method.{key}=5"])
    tosca, simple = compare.plan(["methods=[tosca,simplecil]", "method.train_epochs=5"])
    assert tosca["method"]["train_epochs"] == 5 and "train_epochs" not in simple["method"]


def test_the_sorted_class_order(tmp_path):
    run = Run(settings(tmp_path, "seed=1", "class_order_seed=sorted"), None)
    assert run.benchmark.class_order == list(range(10))
    with pytest.raises(ValueError, match="class_order_seed='srted'"):
        Run(settings(tmp_path, "class_order_seed=srted"), None)


def test_a_key_for_one_method_alone():
    tosca, aper = compare.plan(["methods=[tosca,aper]", "method.lr=0.5", "aper.lr=0.1"])
    assert (tosca["method"]["lr"], aper["method"]["lr"]) == (0.5, 0.1)


def test_a_prompt_run_counts_its_prompts_and_says_its_protocol(tmp_path):
    colours = {"red": (200, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 200)}
    for part, n in (("train", 3), ("test", 2)):
        for name, colour in colours.items():
            (tmp_path / "shades" / part / name).mkdir(parents=True)
            for i in range(n):
                shade = tuple(c + i for c in colour)
                Image.new("RGB", (64, 64), shade).save(
                    tmp_path / "shades" / part / name / f"{i}.png"
                )
    own = ["method=l2p", "method.train_epochs=1", "stream=folder", "stream.classes_per_task=2",
           f"stream.root={tmp_path / 'shades'}", f"results_root={tmp_path}"]  # fmt: skip
    for batchwise, protocol in (("false", "per-image"), ("true", "batch16-sorted")):
        folder = execute(to_settings(compose([*own, f"method.batchwise={batchwise}"])))
        assert folder.parts[-2] == protocol
        table = pd.read_csv(folder / "prompts.csv")
        assert list(table.columns) == ["after_task", "task", "prompt", "count"]
        sums = table.groupby(["after_task", "task"])["count"].sum()
        assert sums.to_dict() == {(0, 0): 4 * 5, (1, 0): 4 * 5, (1, 1): 2 * 5}
    record = json.loads((folder / "run.json").read_text())
    assert record["images_trained"] == 9


def test_the_command_line_says_errors_in_one_line():
    command = [sys.executable, "-m", "experiments.run", "method.epohs=1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "did you mean 'method.train_epochs'" in done.stderr
    assert "Traceback" not in done.stderr


def test_seeds_of_order_and_training_are_separate(tmp_path):
    a = Run(settings(tmp_path, "seed=1", "class_order_seed=5"), None)
    b = Run(settings(tmp_path, "seed=2", "class_order_seed=5"), None)
    c = Run(settings(tmp_path, "seed=1"), None)
    assert a.benchmark.class_order == b.benchmark.class_order != c.benchmark.class_order
    assert (a.strategy.seed, b.strategy.seed, c.strategy.seed) == (1, 2, 1)
