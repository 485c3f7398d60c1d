"""The plan of all methods on all streams."""

import pytest

from experiments import comparison
from experiments.compare import plan
from experiments.config import register_configs
from experiments.identity import run_path


def test_every_command_can_be_planned_and_no_run_is_in_two_of_them(tmp_path):
    register_configs()
    for name in ("aid30", "grocery81", "pacs4x7", "cifar100"):
        (tmp_path / f"{name}.tar").touch()
    paths = []
    shown = [a for s, a in comparison.commands(str(tmp_path)) if s not in ("digits", "aid30")]
    assert not any(map(comparison.missing, shown))
    for stream, arguments in comparison.commands(str(tmp_path), ["digits", "aid30"]):
        assert comparison.missing(arguments) is None
        found = [run_path(settings) for settings in plan(arguments)]
        assert {p.parts[1] for p in found} == {stream}
        paths += found
    assert len(paths) == len(set(paths)) > 50
    seeds = {p.name for p in paths if p.parts[1:4] == ("aid30", "tosca", "per-image")}
    assert seeds == {f"seed-{s}" for s in range(1993, 1998)}


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    comparison.main(["--list", "--only", "glyphs", "--results", "R"])
    lines = capsys.readouterr().out.splitlines()
    assert lines and all("stream=glyphs" in line and "results_root=R" in line for line in lines)
    fast = ["backbone.weights=random"]
    rows = [(("digits", "aid30"), "simplecil", "seeds=[1]", fast)]
    monkeypatch.setattr(comparison, "PLAN", rows)
    call = ["--data", str(tmp_path / "none"), "--results", str(tmp_path / "r")]
    comparison.main(call)
    said = capsys.readouterr()
    assert "left out: aid30, for" in said.err and "run 1 of 1" in said.out
    assert (tmp_path / "r/report/report.html").exists()
    assert (tmp_path / "r/digits/accuracy.png").exists()
    comparison.main(call)
    assert capsys.readouterr().out.count("is finished") == 1
    with pytest.raises(SystemExit, match="no finished run"):
        comparison.main([*call[:2], "--results", str(tmp_path / "e"), "--only", "aid30"])
