"""One run: a method learns a stream task by task, and everything measured is written down.

``python -m experiments.run method=tosca stream=digits seed=1993``; several with ``-m``, see
``experiments.sweep``.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
import time
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pandas as pd
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from experiments.command_line import as_command
from experiments.config import compose, register_configs, to_settings
from experiments.identity import identity, label_of, protocol_of, run_path
from experiments.sweep import is_sweep, sweep
from experiments.target import with_target
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks import find_stream, mixed_experience
from tosca_avalanche.features import FeatureStore
from tosca_avalanche.files import locked
from tosca_avalanche.metrics import Score, count_parameters, count_trainable, sparsity
from tosca_avalanche.modules import ToscaNet
from tosca_avalanche.plugins import AccuracyMatrixPlugin, ProgressPlugin
from tosca_avalanche.records import (
    RunFolder,
    accuracy_rows,
    calibration_rows,
    environment,
    row,
    selection_rows,
)
from tosca_avalanche.strategies import find_strategy


def execute(settings: dict[str, Any]) -> Path:
    """Do one run, or take it up where it was interrupted, and return its folder.

    A finished run of the same settings is not repeated, unless ``overwrite`` is set.
    """
    folder = RunFolder(run_path(settings), identity(settings))
    if not settings["overwrite"] and folder.finished():
        print(f"{folder.path} is finished; overwrite=true repeats it")
        return folder.path
    run = Run(settings, folder)
    with locked(folder.lock):
        # another process may have finished it while this one waited
        if settings["overwrite"] or not folder.finished():
            run.work()
    return folder.path


class Run:
    """A run in progress; without a folder it can learn and test, and nothing is written."""

    def __init__(self, settings: dict[str, Any], folder: RunFolder | None = None) -> None:
        self.settings, self.folder = settings, folder
        self.protocol = protocol_of(settings)
        seed, order_seed = settings["seed"], settings["class_order_seed"]
        self.backbone = load_backbone(**settings["backbone"])
        self.backbone.to(settings["device"])
        stream = {k: v for k, v in settings["stream"].items() if k not in ("name", "label")}
        make = find_stream(settings["stream"]["name"])
        if "class_order_seed" in inspect.signature(make).parameters:
            chosen = seed if order_seed is None else order_seed
            if isinstance(chosen, str) and chosen != "sorted":
                raise ValueError(f"class_order_seed={chosen!r}; choose a number or 'sorted'")
            stream["class_order_seed"] = None if chosen == "sorted" else chosen
        self.benchmark = make(transforms=self.backbone.transforms, **stream)
        self.matrix = AccuracyMatrixPlugin()
        method = {k: v for k, v in settings["method"].items() if k not in ("name", "label")}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="No loggers specified")
            self.strategy = find_strategy(settings["method"]["name"])(
                model=self.backbone,
                plugins=[self.matrix, ProgressPlugin()],
                evaluator=None,
                device=settings["device"],
                store=FeatureStore(settings["store"], settings["feature_dtype"]),
                cache=settings["cache"],
                seed=seed,
                **method,
            )
        self.rows: list[dict[str, Any]] = []
        self.timings: dict[str, list[float]] = {"train_s": [], "eval_s": []}
        self.parameters: list[int] = []

    def work(self) -> None:
        """Learn and test task by task, keep a state after each, then write the results."""
        done = self.resume()
        tasks = len(self.benchmark.train_stream)
        for t in range(done, tasks):
            self.learn(t)
            self.test(t)
            accuracy = self.matrix.correct[t].sum() / max(1, self.matrix.total[t].sum())
            print(
                f"{label_of(self.settings['method'])} ({self.protocol}) "
                f"seed {self.settings['seed']} "
                f"task {t + 1}/{tasks}: {100 * accuracy:.1f} % on classes seen, "
                f"train {self.timings['train_s'][t]:.1f} s, test {self.timings['eval_s'][t]:.1f} s",
                flush=True,
            )
            if t + 1 < tasks:
                self.keep(t + 1)
        self.finish()

    def learn(self, t: int) -> None:
        """Train on task t."""
        start = time.perf_counter()
        workers = {"num_workers": self.settings["num_workers"]}
        self.strategy.train(self.benchmark.train_stream[t], eval_streams=[], **workers)
        self.timings["train_s"].append(time.perf_counter() - start)
        self.parameters.append(
            count_parameters(self.strategy.model) - count_parameters(self.backbone)
        )
        trained = self.strategy.optimizer
        n_trained = (
            sum(p.numel() for g in trained.param_groups for p in g["params"]) if trained else 0
        )
        seconds = self.timings["train_s"][t]
        self.rows += [
            row("params_total", Score(self.parameters[t], 1), t),
            row("params_trainable", Score(n_trained, 1), t),
            row("passes_per_image", Score(self.strategy.model.passes_per_image, 1), t),
            row("train_s", Score(seconds, 1), t),
        ]
        if isinstance(self.strategy.model, ToscaNet):
            newest = list(self.strategy.model.bank.current.parameters())
            self.rows.append(row("sparsity_zero", sparsity(newest), t))
            self.rows.append(row("sparsity_1e-3", sparsity(newest, 1e-3), t))

    def test(self, t: int) -> None:
        """Test on tasks 0..t, in the order of the protocol."""
        seen = [self.benchmark.test_stream[i] for i in range(t + 1)]
        if self.protocol.startswith("batch"):
            seen = [mixed_experience(seen, self.settings["eval_order"], self.settings["seed"])]
        start = time.perf_counter()
        self.strategy.eval(seen, num_workers=self.settings["num_workers"])
        seconds = time.perf_counter() - start
        self.timings["eval_s"].append(seconds)
        images = int(self.matrix.total[t].sum())
        speed = Score(1e3 * seconds / images, images) if images else Score(None, 0)
        self.rows.append(row("eval_ms_per_image", speed, t))

    def keep(self, done: int) -> None:
        """Keep what a restart needs."""
        tensors, rest = self.strategy.model.state()
        own = {
            "net": rest,
            "matrix": self.matrix.state(),
            "rows": self.rows,
            "timings": self.timings,
            "parameters": self.parameters,
            "fingerprint": self.backbone.fingerprint,
        }
        self.folder.save_state(done, tensors, own)

    def resume(self) -> int:
        """Take up an interrupted run; return the number of tasks already done."""
        if self.settings["overwrite"]:
            self.folder.discard_other()
        state = self.folder.load_state()
        if state is None:
            return 0
        if state[2]["fingerprint"] != self.backbone.fingerprint:
            print(f"{self.folder.path}: the backbone has changed, starting again", flush=True)
            self.folder.discard()
            return 0
        done, tensors, own = state
        self.strategy.model.restore(tensors, own["net"])
        self.matrix.restore(own["matrix"])
        self.rows, self.timings = own["rows"], own["timings"]
        self.parameters = own["parameters"]
        print(f"resuming {self.folder.path} after task {done}", flush=True)
        return int(done)

    def finish(self) -> None:
        """Write run.json, metrics.csv and the selection table."""
        tables = {
            t: table
            for t in range(self.matrix.trained)
            if (table := self.matrix.selection_table(t)) is not None
        }
        bins = {
            t: table
            for t in range(self.matrix.trained)
            if (table := self.matrix.reliability_table(t)) is not None
        }
        correct, total = self.matrix.correct, self.matrix.total
        stream, method = label_of(self.settings["stream"]), label_of(self.settings["method"])
        digest = hashlib.sha256(json.dumps(self.folder.settings, sort_keys=True).encode())
        head = {
            "run_id": f"{stream}-{method}-{self.protocol}-{self.settings['seed']}-"
            f"{digest.hexdigest()[:8]}",
            "method": method,
            "stream": stream,
            "seed": self.settings["seed"],
            "protocol": self.protocol,
        }
        rows = accuracy_rows(correct, total) + selection_rows(tables) + self.rows
        rows += calibration_rows(bins)
        backbone = self.backbone
        record = {
            **head,
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "backbone": {
                "name": backbone.name,
                "fingerprint": backbone.fingerprint,
                "embed_dim": backbone.embed_dim,
                "transform": backbone.transforms.parameters,
            },
            **environment(),
            "class_order": self.benchmark.class_order,
            "class_names": self.benchmark.class_names,
            "task_sizes": self.benchmark.task_sizes,
            "split": getattr(self.benchmark, "split", None),
            "images": [
                sum(len(e.dataset) for e in stream)
                for stream in (self.benchmark.train_stream, self.benchmark.test_stream)
            ],
            "task_names": getattr(self.benchmark, "task_names", None),
            "train_views": self.strategy.train_views,
            "images_passed": self.strategy.model.images_passed,
            "images_trained": self.strategy.model.images_trained,
            "timings": self.timings,
            "parameters": {
                "backbone": count_parameters(backbone),
                "total": self.parameters[-1],
                "per_task": np.diff([0, *self.parameters]).tolist(),
                "trainable_left": count_trainable(self.strategy.model),
            },
        }
        counts = [
            {"after_task": t, "task": i, "module": m, "count": int(n)}
            for t, table in tables.items()
            for i, line in enumerate(table)
            for m, n in enumerate(line)
        ]
        extra = {"selection.csv": pd.DataFrame(counts)} if counts else {}
        prompts = [
            {"after_task": t, "task": i, "prompt": p, "count": n}
            for (t, i), line in sorted(self.matrix.prompts.items())
            for p, n in enumerate(line)
        ]
        if prompts:
            extra["prompts.csv"] = pd.DataFrame(prompts)
        if bins:
            columns = ["images", "right", "sum_of_confidence"]
            parts = [pd.DataFrame(b, columns=columns) for b in bins.values()]
            joined = pd.concat(parts, keys=bins, names=["after_task", "bin"]).reset_index()
            extra["reliability.csv"] = joined.astype({"images": int, "right": int})
        self.folder.finish(record, [{**head, **r} for r in rows], extra)


register_configs()


@hydra.main(config_path=None, config_name="run", version_base="1.3")
def _hydra_main(config: DictConfig) -> None:
    home = HydraConfig.get().runtime.cwd
    if os.path.isdir(home):  # a launcher's worker may begin elsewhere, and paths be relative
        os.chdir(home)
    print(execute(to_settings(config)))


def main() -> None:
    """Run from the command line; problems of the user's making are one line, not a traceback."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # lets errors through to the line below
    with as_command("the same command takes the run up after its last finished task"):
        arguments = sys.argv[1:]
        sys.argv = [sys.argv[0], *with_target(arguments)]
        if is_sweep(arguments):
            sweep(_hydra_main)
            return
        compose([a for a in arguments if "=" in a and not a.startswith("-")])
        _hydra_main()


if __name__ == "__main__":
    main()
