"""The folder of a run: whole or absent, never mixed."""

import json

import pandas as pd
import pytest
import torch

from tosca_avalanche.errors import RecordError
from tosca_avalanche.files import read_json
from tosca_avalanche.metrics import Score
from tosca_avalanche.records import RunFolder, read_metrics, row

SETTINGS = {"seed": 1, "method": {"name": "tosca", "l1": 0.0005}}


def rows(x=0.5):
    head = {"run_id": "r", "method": "m", "stream": "s", "seed": 1, "protocol": "per-image"}
    return [
        {**head, **row("acc", Score(x, 4), 0, 0)},
        {**head, **row("forgetting_max", Score(None, 0), 0)},
    ]


def test_finished_results_and_what_they_hold(tmp_path):
    folder = RunFolder(tmp_path / "seed-1", SETTINGS)
    assert not folder.finished()
    folder.save_state(1, {"a": torch.ones(2)}, {"x": 1})
    folder.finish({"protocol": "per-image"}, rows(), {"t.csv": pd.DataFrame({"a": [1]})})
    assert folder.finished()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["seed-1"]
    assert read_json(tmp_path / "seed-1/run.json")["configuration"] == SETTINGS
    text = (tmp_path / "seed-1/metrics.csv").read_text().splitlines()
    assert text[0] == "run_id,method,stream,seed,protocol,after_task,eval_task,metric,value,n"
    assert text[1] == "r,m,s,1,per-image,0,0,acc,0.5,4"
    assert text[2] == "r,m,s,1,per-image,0,,forgetting_max,,0"
    assert read_metrics(tmp_path / "seed-1/metrics.csv")["value"].isna().tolist() == [False, True]


def test_other_settings_are_refused_with_what_differs(tmp_path):
    RunFolder(tmp_path / "seed-1", SETTINGS).finish({}, rows(), {})
    other = RunFolder(tmp_path / "seed-1", {"seed": 1, "method": {"name": "tosca", "l1": 0.0}})
    with pytest.raises(RecordError, match=r"method\.l1 is 0\.0005 there, 0\.0 here"):
        other.finished()
    other.finish({}, rows(0.25), {})  # overwrite
    assert other.finished() and not other.partial.exists()


def test_keys_that_came_or_went_are_no_difference(tmp_path):
    old = {**SETTINGS, "gone": 1, "stream": {"name": "target", "args": {"n": 1}}}
    RunFolder(tmp_path / "seed-1", old).finish({}, rows(), {})
    new = {"seed": 1, "new": 2, "method": {**SETTINGS["method"], "new": 0},
           "stream": {"name": "target", "args": {"n": 1}}}  # fmt: skip
    assert RunFolder(tmp_path / "seed-1", new).finished()
    new["stream"]["args"] = {"n": 1, "more": 2}  # what a key holds is compared whole
    with pytest.raises(RecordError, match=r"stream\.args is"):
        RunFolder(tmp_path / "seed-1", new).finished()


def test_states(tmp_path):
    folder = RunFolder(tmp_path / "seed-1", SETTINGS)
    assert folder.load_state() is None
    folder.save_state(1, {"a": torch.ones(2)}, {"x": 1})
    folder.save_state(2, {"a": torch.zeros(2)}, {"x": 2})
    done, tensors, rest = folder.load_state()
    assert (done, tensors["a"].tolist(), rest) == (2, [0, 0], {"x": 2})
    assert len(list(folder.partial.iterdir())) == 2
    other = RunFolder(tmp_path / "seed-1", {**SETTINGS, "seed": 2})
    with pytest.raises(RecordError, match=r"interrupted run of other settings, 2 tasks.*seed is 1"):
        other.load_state()
    folder.discard_other()
    assert folder.load_state() is not None
    other.discard_other()
    assert folder.load_state() is None
    folder.discard()
    assert folder.load_state() is None


def test_damaged_files_are_named(tmp_path):
    folder = RunFolder(tmp_path / "seed-1", SETTINGS)
    folder.finish({}, rows(), {})
    (tmp_path / "seed-1/run.json").write_text("{")
    with pytest.raises(RecordError, match=r"run\.json can't be read"):
        folder.finished()
    (tmp_path / "list.json").write_text(json.dumps([1]))
    with pytest.raises(RecordError, match="no JSON object"):
        read_json(tmp_path / "list.json")
    (tmp_path / "m.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RecordError, match="'run_id'"):
        read_metrics(tmp_path / "m.csv")
