"""The benchmark's yardstick is the authors' loop, and its report says what was measured."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from experiments import bench
from experiments.authors_loop import AuthorsLoop
from tests.conftest import TinyNet
from tests.streams import classic
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.strategies import TOSCAStrategy

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")


def test_the_authors_loop_passes_every_image_per_epoch_and_per_module():
    backbone = load_backbone(TinyNet())
    strategy = AuthorsLoop(model=backbone, train_epochs=4, evaluator=None)
    benchmark = classic()
    strategy.train(benchmark.train_stream, eval_streams=[])
    train = 3 * (24 * 4 + 24)  # four epochs, and the pass for the prototypes
    assert backbone.images_passed == train
    strategy.eval(benchmark.test_stream)
    assert backbone.images_passed == train + 3 * 30  # three modules, thirty images


def test_the_authors_loop_answers_as_the_batch_protocol_does():
    answers = []
    for cls, settings in (
        (AuthorsLoop, {}),
        (TOSCAStrategy, {"selection": "entropy-batch", "train_views": "fresh", "store": None}),
    ):
        strategy = cls(load_backbone(TinyNet()), train_epochs=2, evaluator=None, **settings)
        benchmark = classic()
        strategy.train(benchmark.train_stream, eval_streams=[])
        outputs = []
        forward = strategy.forward
        strategy.forward = lambda f=forward, o=outputs: o.append(f()) or o[-1]
        strategy.eval(benchmark.test_stream)
        answers.append(torch.cat(outputs))
    torch.testing.assert_close(answers[0], answers[1], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_the_benchmark_from_the_command_line(tmp_path, monkeypatch, capsys):
    arguments = ["bench", "--out", str(tmp_path), "--repeats", "1", "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", arguments)
    bench.main()
    assert "whole run, cold store" in capsys.readouterr().out
    result = json.loads((tmp_path / "bench.json").read_text())
    assert result["runs"]["second_seed"]["images_passed"] == 0
    assert result["runs"]["cold"]["images_passed"] == 1797
    assert {p.name for p in tmp_path.iterdir()} == {
        "bench.json",
        "bench.md",
        "bench.png",
        "bench.csv",
    }
