"""The command line as its users meet it: results, exit codes, what goes where."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.learner.pictures import pictures, write_folder
from tosca_avalanche import ToscaClassifier, __version__
from tosca_avalanche.cli import main

FIT = ["--backbone", "tiny_vit_64", "--epochs", "3", "--lr", "0.1", "--seed", "3"]


@pytest.fixture
def folders(tmp_path):
    first = write_folder(tmp_path / "first", {0: "cat", 1: "dog"})
    return first, write_folder(tmp_path / "second", {2: "bee", 3: "ant"}), tmp_path / "model"


def run(*arguments):
    return main([str(a) for a in arguments])


def test_fit_add_predict_show(folders, capsys, tmp_path):
    first, second, model = folders
    assert run("fit", first, "--out", model, *FIT) == 0
    before = {p.name: p.read_bytes() for p in model.glob("task-*")}
    assert run("add", model, second) == 0
    out, err = capsys.readouterr()
    assert out == "" and "2 tasks and 4 classes" in err
    assert before.items() <= {p.name: p.read_bytes() for p in model.glob("task-*")}.items()

    test = write_folder(tmp_path / "test", {0: "cat", 2: "bee"}, per_class=3, seed=5)
    one = test / "cat" / "001.png"
    assert run("predict", model, one, test, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    paths = [one, *sorted(test.rglob("*.png"))]
    assert [r["image"] for r in rows] == [str(p) for p in paths]
    known = ToscaClassifier.load(model)
    assert [r["label"] for r in rows] == known.predict(paths).tolist()
    assert [r["probability"] for r in rows] == known.predict_proba(paths).max(axis=1).tolist()
    assert run("predict", model, one) == 0
    assert capsys.readouterr().out.split()[:2] == [str(one), rows[0]["label"]]

    direct = ToscaClassifier("tiny_vit_64", epochs=3, lr=0.1, seed=3)
    direct.add_task(first).add_task(second)
    assert direct.predict_proba(paths).tolist() == known.predict_proba(paths).tolist()

    assert run("show", model) == 0
    shown = capsys.readouterr().out
    assert "tiny_vit_64" in shown and "4 in 2 tasks" in shown and "ant, bee" in shown
    assert run("show", model, "--json") == 0
    assert json.loads(capsys.readouterr().out)["format_version"] == 1


def test_errors_go_to_stderr_with_code_1(folders, capsys, tmp_path):
    first, second, model = folders
    assert run("fit", first, "--out", model, *FIT) == 0
    capsys.readouterr()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.png").write_bytes(b"nothing")
    cases = (
        (("fit", second, "--out", model), "pass --overwrite"),
        (("fit", tmp_path / "none", "--out", tmp_path / "m"), "no such folder"),
        (("fit", first, "--out", tmp_path / "m", "--backbone", "vit_x"), "'vit_x'"),
        (("add", tmp_path / "none", second), "holds no model"),
        (("predict", tmp_path / "none", first), "holds no model"),
        (("predict", model, tmp_path / "bad" / "x.png"), "x.png can't be decoded"),
        (("predict", model, tmp_path / "y.png"), "y.png"),
        (("show", tmp_path), "holds no model"),
    )
    for arguments, message in cases:
        assert run(*arguments) == 1, arguments
        out, err = capsys.readouterr()
        assert message in err and err.startswith("tosca-avalanche: error: "), err
        assert not json.loads(out or "[]") and "Traceback" not in err
    assert not (tmp_path / "m").exists() and not (tmp_path / "none").exists()
    assert run("predict", model, tmp_path / "bad" / "x.png", first, "--json") == 1
    out, err = capsys.readouterr()
    assert len(json.loads(out)) == 12, "the others are answered all the same"
    assert run("fit", second, "--out", model, "--overwrite", *FIT) == 0
    assert ToscaClassifier.load(model).classes_.tolist() == ["ant", "bee"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("fit",),
        ("fit", "x"),
        ("learn", "x"),
        ("fit", "x", "--out", "m", "--epochs", "-1"),
        ("fit", "x", "--out", "m", "--lr", "fast"),
        ("fit", "x", "--out", "m", "--selection", "oracle"),
        ("predict", "m"),
    ],
)
def test_wrong_usage_is_code_2(arguments, capsys):
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and "error: " in err


def test_help_and_version(capsys):
    assert run("--version") == 0 and capsys.readouterr().out.strip() == __version__
    for command in ("fit", "add", "predict", "show"):
        assert run(command, "--help") == 0
        assert capsys.readouterr().out.startswith(f"usage: tosca-avalanche {command}")


def test_kill_9_during_add_leaves_the_old_model(folders, capsys):
    first, second, model = folders
    assert run("fit", first, "--out", model, *FIT) == 0
    before = {p.name: p.read_bytes() for p in model.iterdir()}
    settings = json.loads((model / "model.json").read_text())
    settings["recipe"]["epochs"] = 100_000  # long enough to be killed in the middle
    del settings["checksum"]  # the change is meant
    (model / "model.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "tosca_avalanche", "add", str(model), str(second)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not (model / ".editing").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(3)
    assert process.poll() is None, process.stderr.read()
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    (model / "model.json").write_bytes(before["model.json"])
    after = {p.name: p.read_bytes() for p in model.iterdir()}
    assert before.items() <= after.items()
    assert ToscaClassifier.load(model).predict(pictures([0], 2)[0]).tolist() == ["cat", "cat"]
    assert run("add", model, second) == 0, "the dead process holds no lock"
    assert ToscaClassifier.load(model).n_tasks == 2


def test_a_closed_pipe_is_no_error(folders):
    first, _, model = folders
    assert run("fit", first, "--out", model, *FIT) == 0
    command = f"{sys.executable} -m tosca_avalanche predict {model} {first}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"], capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr and done.returncode == 0


def test_the_examples_of_the_readme_run(tmp_path, monkeypatch, capsys):
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    python, bash = (
        re.search(rf"<!-- {name} example -->\n```\w+\n(.*?)```", readme, re.DOTALL)[1]
        for name in ("classifier", "command line")
    )
    write_folder(tmp_path / "animals", {0: "cat", 1: "dog"})
    write_folder(tmp_path / "plants", {2: "oak", 3: "fir"})
    write_folder(tmp_path / "test", {0: "cat", 2: "oak"}, seed=3)
    write_folder(tmp_path, {1: "new"}, seed=4)
    for i in (1, 2):
        (tmp_path / "new" / f"{i:03}.png").rename(tmp_path / "new" / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    assert len(python.strip().splitlines()) <= 10
    exec(python, {})
    assert "Explanation(label=" in capsys.readouterr().out
    (tmp_path / "model").rename(tmp_path / "by_python")
    for line in bash.strip().splitlines():
        program, *arguments = shlex.split(line)
        assert program == "tosca-avalanche" and run(*arguments) == 0
    assert "new/2.png" in capsys.readouterr().out
    for path in (tmp_path / "model").glob("*.safetensors"):
        assert path.read_bytes() == (tmp_path / "by_python" / path.name).read_bytes()


def test_the_routed_preset_and_unknown_answers(folders, capsys):
    first, second, model = folders
    assert run("fit", first, "--out", model, *FIT, "--preset", "routed") == 0
    assert run("add", model, second) == 0
    assert run("show", model) == 0
    assert "gaussian-ridge" in capsys.readouterr().out
    assert run("fit", first, "--out", model, *FIT, "--overwrite") == 0
    assert run("predict", model, first, "--json", "--abstain", "0") == 0
    assert {r["label"] for r in json.loads(capsys.readouterr().out)} == {"unknown"}
    assert run("predict", model, first, "--abstain", "-1") == 2
    assert run("fit", first, "--out", model, "--preset", "best") == 2
