"""Results and states of runs, damaged: an error that names the file, or the same numbers."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
import torch

from experiments.figures import TABLES, _last_tables
from tests.damage import survives
from tosca_avalanche.errors import RecordError
from tosca_avalanche.records import COLUMNS, RunFolder, read_metrics

SETTINGS = {"method": {"name": "tosca", "lr": 0.1}, "seed": 1}


def rows():
    row = dict.fromkeys(COLUMNS, 1) | {"run_id": "r", "metric": "acc", "value": 0.5}
    return [row, {**row, "value": 0.25}]


def test_results(tmp_path):
    folder = RunFolder(tmp_path / "seed-1", SETTINGS)
    folder.finish({"protocol": "per-image"}, rows(), {})
    frame = read_metrics(folder.path / "metrics.csv")
    for name in ("metrics.csv", "run.json"):
        outcomes = survives(
            lambda: (folder.finished(), read_metrics(folder.path / "metrics.csv")),
            folder.path / name,
            lambda found: found[0] is True and found[1].equals(frame),
            range(120),
        )
        assert outcomes.count("refused") > 80
    text = (folder.path / "metrics.csv").read_bytes()
    (folder.path / "metrics.csv").write_bytes(text.replace(b"\n", b"\r\n"))
    assert read_metrics(folder.path / "metrics.csv").equals(frame), "line ends of another system"
    (folder.path / "run.json").unlink()
    assert isinstance(read_metrics(folder.path / "metrics.csv"), pd.DataFrame)


@pytest.mark.parametrize("stem", TABLES)
def test_tables_of_figures(stem, tmp_path):
    """With the checksum of run.json; of a run before it had them, no crash."""
    folder = RunFolder(tmp_path / "seed-1", SETTINGS)
    table = pd.DataFrame({c: [0, 1, 2, 3] for c in TABLES[stem]}).astype(TABLES[stem])
    folder.finish({"protocol": "per-image"}, rows(), {f"{stem}.csv": table})
    path, last = folder.path / f"{stem}.csv", table[table["after_task"] == 3]

    def read():
        return _last_tables([folder.path], stem)[0]

    for name in (path.name, "run.json"):
        outcomes = survives(read, folder.path / name, last.equals, range(120))
        assert outcomes.count("refused") > 80
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(RecordError, match=rf"{stem}\.csv can't be read"):
        read()
    (folder.path / "run.json").unlink()
    assert _last_tables([folder.path], stem) == []
    path.write_bytes(whole)
    outcomes = survives(read, path, lambda found: {*table} <= {*found}, range(120))
    assert outcomes.count("refused") > 10


def test_the_state_of_an_interrupted_run(tmp_path):
    folder = RunFolder(tmp_path / "seed-1", SETTINGS)
    folder.save_state(2, {"a": torch.arange(9.0)}, {"x": [1, 0.1]})
    for name in ("state.json", "state-2.safetensors"):
        outcomes = survives(
            folder.load_state,
            folder.partial / name,
            lambda s: (s[0], s[1]["a"].tolist(), s[2]) == (2, [*range(9)], {"x": [1, 0.1]}),
            range(60),
        )
        assert outcomes.count("refused") > 40
    shutil.copy(folder.partial / "state.json", tmp_path / "kept.json")
    (folder.partial / "state-2.safetensors").unlink()
    with pytest.raises(RecordError, match=r"state-2\.safetensors"):
        folder.load_state()
    folder.discard_other()
    assert folder.load_state() is None


def test_a_state_of_an_earlier_version_has_no_checksums(tmp_path):
    folder = RunFolder(tmp_path / "seed-1", SETTINGS)
    folder.save_state(1, {"a": torch.ones(1)}, {})
    path = folder.partial / "state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in state.items() if k not in ("sha256", "checksum")}))
    assert folder.load_state()[0] == 1
