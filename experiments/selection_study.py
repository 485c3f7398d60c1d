"""Which rule finds the right module: an ablation of rules and of ways to train the modules.

``python -m experiments.selection_study --data FOLDER`` reads FOLDER/cifar100.tar,
grocery81.tar and aid30.tar (those that are there) and the rendered glyphs, and writes
``results/selection``. Two parts:

- validation: three class orders; a tenth of each class's training images is held out and
  answers are judged on it. Every choice behind the recommended preset was made here.
- test: five other class orders, trained on all training images, judged on the test images.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from experiments.command_line import as_command
from experiments.selection_report import write_report
from experiments.selection_rules import ROUTERS, RULES, Evidence
from experiments.selection_training import TRAININGS, evidence, learn
from tosca_avalanche.backbones import FrozenBackbone, load_backbone
from tosca_avalanche.benchmarks import folder, glyphs
from tosca_avalanche.features import FeatureData, FeatureStore
from tosca_avalanche.files import atomic_write
from tosca_avalanche.metrics import expected_calibration_error, reliability_table
from tosca_avalanche.seeding import generator
from tosca_avalanche.strategies.cached import FeatureCache

STREAMS: dict[str, tuple[str, int]] = {
    "cifar100 10x10": ("cifar100.tar", 10),
    "cifar100 20x5": ("cifar100.tar", 5),
    "grocery81 9x9": ("grocery81.tar", 9),
    "aid30 6x5": ("aid30.tar", 5),
    "glyphs 50x10": ("", 10),
}
VALIDATION_SEEDS, TEST_SEEDS = (1, 2, 3), (1993, 1994, 1995, 1996, 1997)
TEST_TRAININGS = ("authors", "+ trained rows (preset)")
# the same images as in ten tasks: they would count twice in a choice
NOT_FOR_CHOICES = ("cifar100 20x5",)


def features(
    backbone: FrozenBackbone, cache: FeatureCache, stream: str, root: Path, seed: int
) -> tuple[list[FeatureData], list[FeatureData]] | None:
    """Return training and test features of each task; None where the data are absent."""
    archive, per_task = STREAMS[stream]
    own: dict[str, Any] = {"class_order_seed": seed}
    if not archive:
        benchmark = glyphs(backbone.transforms, **own)
    elif (root / archive).exists():
        benchmark = folder(root / archive, backbone.transforms, classes_per_task=per_task, **own)
    else:
        return None
    sides = []
    for side in (benchmark.train_stream, benchmark.test_stream):
        found = [cache.get(backbone, experience.dataset.eval()) for experience in side]
        sides.append([data for data in found if data is not None])
    return sides[0], sides[1]


def held_out(data: FeatureData, seed: int) -> tuple[FeatureData, FeatureData]:
    """Split off a tenth of each class's images (one at least, if there are two)."""
    out = torch.zeros(len(data.y), dtype=torch.bool)
    for label in sorted(set(data.y.tolist())):
        own = (data.y == label).nonzero().flatten()
        order = own[torch.randperm(len(own), generator=generator(seed, "held out", label))]
        out[order[: max(1, len(own) // 10) if len(own) > 1 else 0]] = True
    return FeatureData(data.z[~out], data.y[~out]), FeatureData(data.z[out], data.y[out])


def judged(e: Evidence, y: Tensor, classes: list[int], rules: list[str]) -> list[dict[str, Any]]:
    """Return accuracy, selection accuracy, calibration and time of each rule."""
    place = {label: i for i, label in enumerate(classes)}
    y = torch.tensor([place[label] for label in y.tolist()])
    rows = []
    for rule in rules:
        start = time.perf_counter()
        scores, task = RULES[rule](e)
        seconds = time.perf_counter() - start
        confidence, answer = torch.softmax(scores, dim=1).max(dim=1)
        table = reliability_table(confidence.numpy(), (answer == y).numpy())
        rows.append(
            {
                "rule": rule,
                "acc": float((answer == y).double().mean()),
                "selection_acc": float((task == e.task_of[y]).double().mean()),
                "ece": float(expected_calibration_error(table).value),
                "rule_us_per_image": 1e6 * seconds / len(y),
                "n": len(y),
            }
        )
    return rows


def study(options: argparse.Namespace) -> pd.DataFrame:
    """Run what is not in the table yet, one (part, stream, seed, training) after another."""
    path = options.out / "runs.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame()
    keys = ["part", "stream", "seed", "training"]
    known = set(done[keys].itertuples(index=False, name=None)) if len(done) else set()
    backbone = load_backbone("tiny_vit_64")
    cache = FeatureCache(FeatureStore("default"))
    plan = [
        (part, stream, seed, name)
        for part, seeds, names in (
            ("validation", VALIDATION_SEEDS, tuple(TRAININGS)),
            ("test", TEST_SEEDS, TEST_TRAININGS),
        )
        for stream in options.streams
        if part == "test" or stream not in NOT_FOR_CHOICES
        for seed in seeds
        for name in names
    ]
    todo = [item for item in plan if item not in known]
    start, held = time.time(), {}
    for i, (part, stream, seed, name) in enumerate(todo):
        if (stream, seed) not in held:
            held = {(stream, seed): features(backbone, cache, stream, options.data, seed)}
        found = held[stream, seed]
        if found is None:
            print(f"{stream}: no {STREAMS[stream][0]} in {options.data}, skipped", flush=True)
            continue
        train, test = found
        if part == "validation":
            pairs = [held_out(data, seed) for data in train]
            train, test = [a for a, _ in pairs], [b for _, b in pairs]
        net = learn(TRAININGS[name], backbone, train, seed)
        e = evidence(net, train, torch.cat([data.z for data in test]), seed)
        rules = [rule for rule in RULES if rule not in ROUTERS or name == "authors"]
        rows = judged(e, torch.cat([data.y for data in test]), net.classes, rules)
        new = pd.DataFrame(
            [dict(zip(keys, (part, stream, seed, name), strict=True)) | r for r in rows]
        )
        done = pd.concat([done, new], ignore_index=True)
        atomic_write(path, lambda p, table=done: table.to_csv(p, index=False))
        rate = (time.time() - start) / (i + 1)
        print(
            f"{i + 1}/{len(todo)} {part}, {stream}, seed {seed}, {name}: "
            f"{100 * new['acc'].max():.1f} % at best, {rate:.0f} s a run, "
            f"{rate * (len(todo) - i - 1) / 60:.0f} min left",
            flush=True,
        )
    return done


def main() -> None:
    """Run the study and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the archives")
    parser.add_argument("--out", type=Path, default=Path("results/selection"))
    parser.add_argument("--streams", nargs="+", default=list(STREAMS), choices=list(STREAMS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with as_command("the same command takes up where it stopped"):
        write_report(study(options), options.out)
    print(f"tables and plot: {options.out}")


if __name__ == "__main__":
    main()
