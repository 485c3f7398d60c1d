"""Runs that also write what the final net answers, and that can be made to kill themselves."""

from __future__ import annotations

import os
import signal
import sys

import pandas as pd
import torch

from experiments import run
from experiments.config import compose, to_settings
from tosca_avalanche.backbones import FrozenBackbone
from tosca_avalanche.features import extract
from tosca_avalanche.files import atomic_write
from tosca_avalanche.plugins import AccuracyMatrixPlugin
from tosca_avalanche.strategies import FrozenBackboneStrategy

TIMES = ("train_s", "eval_ms_per_image")
STREAM = (
    "stream=glyphs",
    "stream.n_classes=6",
    "stream.classes_per_task=2",
    "stream.train_per_class=6",
    "stream.test_per_class=4",
    "backbone.weights=random",
)


def arguments(root, method="tosca", *more):
    """Return the command line of a small run: 36 images to train on, 24 to test on."""
    epochs = ["method.train_epochs=3", "method.train_mb_size=4"]
    if method in ("simplecil", "slda"):
        epochs = []
    elif method == "ranpac":
        epochs = ["method.first_epochs=3", "method.train_mb_size=4", "method.projection=100"]
    places = (f"results_root={root}", f"store={root}/features")
    return [*STREAM, f"method={method}", *places, *epochs, *more]


def with_answers():
    """Make every run write the outputs of its last net, just before its results appear."""
    finish = run.Run.finish

    def finishing(self):
        outer = self.folder.finish

        def after_record(*record):
            data = [item[0] for e in self.benchmark.test_stream for item in e.dataset]
            self.strategy.model.eval()
            with torch.no_grad():
                out = self.strategy.model(torch.stack(data))
            place = self.folder.path.with_name("outputs.pt")
            atomic_write(place, lambda path: torch.save(out, path))
            outer(*record)

        self.folder.finish = after_record
        finish(self)

    run.Run.finish = finishing


EVENTS = {
    "extraction": (FrozenBackbone, "forward"),
    "training": (FrozenBackboneStrategy, "_after_training_iteration"),
    "evaluation": (AccuracyMatrixPlugin, "after_eval_iteration"),
    "writing": (os, "replace"),
}


def dying(event: str, count: int, how: int = signal.SIGKILL) -> None:
    """Make this process kill itself before the ``count``-th call of an event."""
    owner, name = EVENTS[event]
    call, calls = getattr(owner, name), []

    def counted(*given, **named):
        calls.append(1)
        if len(calls) == count:
            os.kill(os.getpid(), how)
        return call(*given, **named)

    setattr(owner, name, counted)


def executed(words):
    """Do the run of a command line in this process; return its folder."""
    return run.execute(to_settings(compose(list(words))))


def die(words, event, count):
    """Do the run and be killed in it."""
    extract.SHARD_IMAGES = 4  # or all images of a task would be one shard
    dying(event, count)
    executed(words)
    os._exit(17)  # the event did not come so often


def written(folder):
    """Return all that a run wrote, times left out, and what its net answers."""
    frame = pd.read_csv(folder / "metrics.csv")
    tables = {p.name: p.read_text() for p in folder.glob("*.csv") if p.name != "metrics.csv"}
    tables["metrics.csv"] = frame[~frame["metric"].isin(TIMES)].to_csv()
    place = folder.with_name("outputs.pt")
    answers = torch.load(place, weights_only=True).numpy().tobytes() if place.exists() else None
    return tables, answers


if __name__ == "__main__":
    with_answers()
    print("begins", flush=True)
    sys.argv[0] = "run"
    run.main()
