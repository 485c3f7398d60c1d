"""What the feature store, the stacked bank and the fast path save: ratios in one run.

``python -m experiments.bench`` writes bench.json, bench.md, bench.png and bench.csv to
``results/bench``. Every time is the median of repeats on this machine, and what counts is
the ratio of two times of the same run.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from avalanche.benchmarks.utils import as_classification_dataset
from torch.utils.data import TensorDataset
from tqdm.auto import tqdm

from experiments.authors_loop import AuthorsLoop
from experiments.bench_report import write_report
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks import digits, folder
from tosca_avalanche.features import FeatureStore
from tosca_avalanche.modules import LuCA, ToscaNet
from tosca_avalanche.plugins import AccuracyMatrixPlugin
from tosca_avalanche.records import environment
from tosca_avalanche.strategies import TOSCAStrategy
from tosca_avalanche.strategies.cached import FeatureCache

MODULES = (1, 10, 100, 500)
IMAGES = 512


def seconds(work: Callable[[], Any], repeats: int) -> list[float]:
    """Return the wall time of each repeat."""
    out = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        out.append(time.perf_counter() - start)
    return out


def median_of(work: Callable[[], Any], repeats: int) -> float:
    """Return the median time after one run that is not counted."""
    work()
    return statistics.median(seconds(work, repeats))


class Bench:
    """The measurements; each method returns plain values."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.backbone = load_backbone("tiny_vit_64")

    def stream(self, seed: int) -> Any:
        """Return the benchmark: ten tasks of digits, or a folder of images."""
        if self.options.root:
            return folder(
                self.options.root,
                self.backbone.transforms,
                classes_per_task=self.options.classes_per_task,
                class_order_seed=seed,
            )
        return digits(self.backbone.transforms, classes_per_task=1, class_order_seed=seed)

    def whole_run(self, strategy_class: type, seed: int, **settings: Any) -> tuple[float, int]:
        """Train on every task and evaluate after each; return seconds and images passed."""
        benchmark = self.stream(seed)
        before, start = self.backbone.images_passed, time.perf_counter()
        strategy = strategy_class(
            model=self.backbone,
            train_epochs=self.options.epochs,
            plugins=[AccuracyMatrixPlugin()],
            evaluator=None,
            seed=seed,
            **settings,
        )
        for t, experience in enumerate(benchmark.train_stream):
            strategy.train(experience, eval_streams=[])
            strategy.eval(benchmark.test_stream[: t + 1])
        return time.perf_counter() - start, self.backbone.images_passed - before

    def runs(self) -> dict[str, Any]:
        """1 and 2: whole runs, cold, warm and with a second seed, against the authors' loop."""
        cold, warm, other, slow = [], [], [], []
        for _ in range(self.options.repeats):
            with tempfile.TemporaryDirectory() as root:
                cold.append(self.whole_run(TOSCAStrategy, 1, store=FeatureStore(root)))
                warm.append(self.whole_run(TOSCAStrategy, 1, store=FeatureStore(root)))
                other.append(self.whole_run(TOSCAStrategy, 2, store=FeatureStore(root)))
        for _ in range(self.options.slow_repeats):
            slow.append(self.whole_run(AuthorsLoop, 1))
        names = {"authors": slow, "cold": cold, "warm": warm, "second_seed": other}
        out: dict[str, Any] = {
            name: {
                "seconds": statistics.median(s for s, _ in runs),
                "all_seconds": [s for s, _ in runs],
                "images_passed": runs[0][1],
            }
            for name, runs in names.items()
        }
        for name in ("cold", "warm", "second_seed"):
            out[name]["times_faster"] = out["authors"]["seconds"] / out[name]["seconds"]
        return out

    def net(self, tasks: int) -> ToscaNet:
        """Return a net of one-class tasks with random prototypes."""
        net = ToscaNet(self.backbone, scale_init=16.0)
        generator = torch.Generator().manual_seed(0)
        for t in range(tasks):
            net.add_task([t])
            net.finish_task(torch.randn(1, self.backbone.embed_dim, generator=generator))
        return net.eval()

    @torch.no_grad()
    def evaluation(self) -> dict[str, Any]:
        """3: the modules on cached features, against one backbone pass over the same images."""
        x = torch.randn(IMAGES, 3, 64, 64, generator=torch.Generator().manual_seed(0))
        z = self.backbone(x)
        repeats = self.options.repeats
        images = median_of(lambda: [self.backbone(p) for p in x.split(64)], repeats)
        out: dict[str, Any] = {"backbone_ms_per_image": 1e3 * images / IMAGES}
        for tasks in MODULES:
            net = self.net(tasks)
            took = median_of(lambda n=net: [n.classify(p) for p in z.split(64)], repeats)
            out[f"modules_{tasks}_ms_per_image"] = 1e3 * took / IMAGES
        one, hundred = out["modules_1_ms_per_image"], out["modules_100_ms_per_image"]
        out["ratio_100"] = hundred / (out["backbone_ms_per_image"] + one)
        out["growth_100_to_500"] = out["modules_500_ms_per_image"] / hundred
        return out

    def iteration(self) -> dict[str, Any]:
        """4: an iteration of the Avalanche loop against a plain loop on the same tensors."""
        benchmark = digits(self.backbone.transforms, classes_per_task=10)
        experience = benchmark.train_stream[0]
        store, epochs = FeatureStore(None), 4
        strategy = TOSCAStrategy(self.backbone, train_epochs=1, store=store, evaluator=None, seed=0)
        features = strategy.features(experience.dataset.eval())
        assert features is not None
        count = epochs * -(-len(features.y) // 48)

        def plain() -> None:
            module = LuCA(self.backbone.embed_dim)
            rows = torch.randn(10, self.backbone.embed_dim).requires_grad_()
            sigma = torch.ones(()).requires_grad_()
            optimizer = torch.optim.SGD([*module.parameters(), rows, sigma], 0.025, 0.9)
            for _ in range(epochs):
                order = torch.randperm(len(features.y))
                for batch in order.split(48):
                    optimizer.zero_grad()
                    x = F.normalize(module(features.z[batch]), dim=-1)
                    logits = sigma * F.linear(x, F.normalize(rows, dim=-1))
                    loss = F.cross_entropy(logits, features.y[batch]) + 5e-4 * module.l1_norm()
                    loss.backward()
                    optimizer.step()

        def ours(train_epochs: int) -> None:
            mine = TOSCAStrategy(
                self.backbone, train_epochs=train_epochs, store=store, evaluator=None, seed=0
            )
            mine.train(experience, eval_streams=[])

        repeats = self.options.repeats
        bare = median_of(plain, repeats) / count
        # what a task costs once (keys, prototypes) is no part of an iteration
        once = median_of(lambda: ours(0), repeats)
        loop = (median_of(lambda: ours(epochs), repeats) - once) / count
        return {"plain_ms": 1e3 * bare, "avalanche_ms": 1e3 * loop, "ratio": loop / bare}

    @torch.no_grad()
    def extraction(self) -> dict[str, Any]:
        """5: images to stored features, decoding and writing included, against bare forwards."""
        data = digits(self.backbone.transforms, classes_per_task=10).train_stream[0].dataset.eval()
        x = torch.stack([data[i][0] for i in range(len(data))])
        tensors = TensorDataset(x, torch.zeros(len(x), dtype=torch.long))

        tensors.targets = [0] * len(x)  # type: ignore[attr-defined]
        source = as_classification_dataset(tensors)

        def store(dataset: Any) -> None:
            with tempfile.TemporaryDirectory() as root:
                FeatureCache(FeatureStore(root)).get(self.backbone, dataset.eval())

        bare, pixels, images = [], [], []
        for repeat in range(self.options.repeats + 1):
            for out, work in (
                (bare, lambda: [self.backbone.module(p) for p in x.split(64)]),
                (pixels, lambda: store(source)),
                (images, lambda: store(data)),
            ):
                took = seconds(work, 1)
                out += took if repeat else []  # the first is the warm-up
        base = statistics.median(bare)
        return {
            "bare_images_per_s": len(x) / base,
            "tensors_ratio": base / statistics.median(pixels),
            "images_ratio": base / statistics.median(images),
        }

    def growth(self) -> dict[str, Any]:
        """6: bytes per task, peak memory and the time to add a task, few and many modules."""
        net = self.net(1)
        own = sum(p.numel() * p.element_size() for p in net.bank.luca[0].parameters())
        row = net.head.rows.element_size() * self.backbone.embed_dim
        out: dict[str, Any] = {"bytes_per_task": own + row}
        for tasks in (1, 500):
            net, took = self.net(tasks), []
            for t in range(tasks, tasks + 20):
                start = time.perf_counter()
                net.add_task([t])
                net.finish_task(torch.zeros(1, self.backbone.embed_dim))
                took.append(time.perf_counter() - start)
            out[f"add_task_ms_at_{tasks}"] = 1e3 * statistics.median(took)
        for tasks in (1, 100, 500):
            command = [sys.executable, "-m", "experiments.bench", "--memory-of", str(tasks)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            out[f"peak_mb_at_{tasks}"] = float(done.stdout.split()[-1])
        return out


@torch.no_grad()
def print_peak_memory(tasks: int) -> None:
    """Print the peak memory (MB) that building and evaluating ``tasks`` modules adds."""
    bench = Bench(argparse.Namespace())
    z = torch.zeros(IMAGES, bench.backbone.embed_dim)
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # start the peak anew: imports don't count
    net = bench.net(tasks)
    for part in z.split(64):
        net.classify(part)
    print(_memory("VmHWM") - before)


def _memory(field: str) -> float:
    """Return a figure of this process in MB, from Linux's /proc."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1e3
    raise RuntimeError(f"/proc/self/status has no {field}: peak memory needs Linux")


def main() -> None:
    """Measure everything and write the report."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench", description=__doc__)
    parser.add_argument("--out", default="results/bench")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--slow-repeats", type=int, default=1, help="runs of the authors' loop")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--root", help="a folder stream instead of digits")
    parser.add_argument("--classes-per-task", type=int, default=10)
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print_peak_memory(options.memory_of)
        return
    warnings.filterwarnings("ignore", message="No loggers specified|.*cross-entropy is 0")
    bench = Bench(options)
    parts = ("iteration", "evaluation", "extraction", "growth", "runs")
    result: dict[str, Any] = {}
    for part in tqdm(parts, desc="bench", unit="part"):
        result[part] = getattr(bench, part)()
    settings = {k: v for k, v in vars(options).items() if k not in ("memory_of", "out")}
    stream = Path(options.root).name if options.root else "digits, 10 tasks of 1 class"
    write_report(
        Path(options.out), {**result, "stream": stream, "settings": settings, **environment()}
    )


if __name__ == "__main__":
    main()
