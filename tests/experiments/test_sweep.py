"""Sweeps: serial and through launchers, the same runs in the same folders."""

import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path

import pandas as pd
import pytest

from experiments import run
from experiments.sweep import launcher_settings, planned
from tosca_avalanche.errors import ToscaError

ROOT = Path(__file__).parents[2]
FAST = ("backbone.weights=random", "stream._target_=tests.experiments.dying.dying_digits")
SWEEP = ("-m", "method=simplecil,slda", "seed=1,2", *FAST)
TIMES = ("train_s", "eval_ms_per_image")


def start(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    run.main()


def results(root):
    frames = {}
    for path in sorted(Path(root).rglob("metrics.csv")):
        frame = pd.read_csv(path)
        key = str(path.parent.relative_to(root))
        frames[key] = frame[~frame["metric"].isin(TIMES)].to_csv()
    return frames


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    home = tmp_path_factory.mktemp("serial")
    patch = pytest.MonkeyPatch()
    patch.chdir(home)
    patch.delenv("TOSCA_TEST_MARK", raising=False)
    start(patch, *SWEEP, "results_root=all")
    patch.undo()
    return home


def test_a_sweep_is_its_runs_one_by_one(serial, monkeypatch, capsys):
    assert [p.name for p in serial.iterdir()] == ["all"]  # Hydra leaves nothing of its own
    found = results(serial / "all")
    assert list(found) == [
        f"dying_digits/{m}/per-image/seed-{s}" for m in ("simplecil", "slda") for s in (1, 2)
    ]
    monkeypatch.chdir(serial)
    start(monkeypatch, "method=slda", "seed=2", *FAST, "results_root=../one")
    one = results(serial.parent / "one")
    assert one == {k: v for k, v in found.items() if k in one} and len(one) == 1
    capsys.readouterr()
    start(monkeypatch, *SWEEP, "results_root=all")
    assert capsys.readouterr().out.count("is finished") == 4


def test_a_run_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start(monkeypatch, "method=simplecil", "seed=1", *FAST, "results_root=r")
    with pytest.raises(SystemExit, match="results of other settings"):
        start(monkeypatch, "-m", "method=simplecil", "seed=1,2", *FAST, "results_root=r",
              "method.eval_mb_size=7")  # fmt: skip
    assert len(results("r")) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["method=tosca,simplecil", "method.train_epochs=1"], "unknown key 'method.train_epochs'"),
        (["method=tosca,simplecli"], "did you mean 'simplecil'"),
        (["method=tosca", "sed=1,2"], "did you mean 'seed'"),
    ],
)
def test_every_key_is_checked_first(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=says):
        planned(["-m", *arguments])
    with pytest.raises(SystemExit, match=says):
        start(monkeypatch, "-m", *arguments)
    assert not list(tmp_path.iterdir())


def test_a_launcher_that_is_not_there_is_named(monkeypatch):
    for name in ("joblib", "ray"):
        monkeypatch.setitem(sys.modules, f"hydra_plugins.hydra_{name}_launcher", None)
        with pytest.raises(ToscaError, match=rf"pip install 'tosca_avalanche\[{name}\]'"):
            launcher_settings([f"hydra/launcher={name}"])
    assert launcher_settings(["method=tosca", "seed=1,2"]) == []


def test_what_ray_is_told(monkeypatch):
    # asked on a machine without the extra as well, where the folder above is missing too
    for name in ("hydra_plugins", "hydra_plugins.hydra_ray_launcher"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    init, chosen = "hydra.launcher.ray.init", "hydra/launcher=ray"
    assert launcher_settings([chosen]) == [f"+{init}.include_dashboard=false"]
    there = [chosen, f"{init}.address=192.0.2.7:6379"]
    assert launcher_settings(there) == [f"+{init}.object_store_memory=null"]
    client = launcher_settings([chosen, f"{init}.address=ray://192.0.2.7:10001"])
    assert client[1:] == [f"+{init}.runtime_env.env_vars.PYTHONPATH={ROOT}"]
    monkeypatch.setenv("RAY_ADDRESS", "ray://192.0.2.7:10001")
    own = f"+{init}.runtime_env.env_vars.PYTHONPATH=/elsewhere"
    assert launcher_settings([chosen, own]) == [f"+{init}.object_store_memory=null"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("joblib", ["hydra.launcher.n_jobs=2"]),
        ("ray", ["hydra.launcher.ray.init.address=local", "+hydra.launcher.ray.init.num_cpus=2"]),
    ],
)
def test_a_launcher_and_a_killed_worker_change_nothing(name, settings, serial, tmp_path):
    try:
        if importlib.util.find_spec(f"hydra_plugins.hydra_{name}_launcher") is None:
            pytest.skip(f"the extra {name} is not installed")
    except ModuleNotFoundError:
        pytest.skip(f"the extra {name} is not installed")
    mark = tmp_path / "died"
    # niceness: beside other work Ray's workers, nice by default, would hardly get a turn
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TOSCA_TEST_MARK": str(mark),
                   "RAY_worker_niceness": "0"}  # fmt: skip
    command = [sys.executable, "-m", "experiments.run", *SWEEP, f"hydra/launcher={name}",
               *settings, "results_root=all"]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert mark.exists()
    assert results(tmp_path / "all") == results(serial / "all")
    assert {p.name for p in tmp_path.iterdir()} == {"all", "died"}
    assert not list(tmp_path.rglob("*.partial"))
