"""What modules are like inside: how similar they are, and how they move the features.

Both studies train as a run does, on its benchmark and from its settings, and keep nothing but
numbers and a figure.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from experiments.identity import label_of
from experiments.measures import Measure
from experiments.run import Run
from tosca_avalanche.learner.parts import SETTINGS
from tosca_avalanche.modules import ModuleBank, ToscaNet
from tosca_avalanche.plots.maps import plot_maps
from tosca_avalanche.plots.similarity import plot_similarity
from tosca_avalanche.seeding import generator

Study = Callable[[list[tuple[str, dict[str, Any]]], Path], tuple[pd.DataFrame, dict[str, Any]]]
"""From (setting, settings of a run) and the figure's path to a row per number, and the head."""

UNTRAINED = "untrained (control)"
RAW = "raw features"
SIMILARITIES = {
    "parameters": Measure("parameters (cosine)", digits=3),
    "matrices": Measure("matrices alone (cosine)", digits=3),
    "outputs": Measure("outputs on training images (cosine)", digits=3),
}
SEPARATIONS = {
    "silhouette": Measure("silhouette, features", digits=3),
    "nearest": Measure("1-NN, features (%)", factor=100),
    "own_nearest": Measure("1-NN within the task, features (%)", factor=100),
    "map_silhouette": Measure("silhouette, map", digits=3),
    "map_nearest": Measure("1-NN, map (%)", factor=100),
}
TSNE_IMAGES = 400
TSNE_STATE = 0
# as many classes as can be told apart by colour and marker; with more, tasks are coloured
CLASS_COLOURS = 10


def learned(settings: dict[str, Any], least: int = 1) -> Run:
    """Return a run that has learned its whole stream, and was not tested.

    :raises ValueError: a stream of fewer than ``least`` tasks.
    """
    run = Run(settings)
    tasks = len(run.benchmark.train_stream)
    if tasks < least:
        raise ValueError(f"{label_of(settings['stream'])} has {tasks} task(s), {least} are needed")
    for t in range(tasks):
        run.learn(t)
        print(
            f"{label_of(settings['method'])} seed {settings['seed']} task {t + 1}/{tasks}: "
            f"train {run.timings['train_s'][t]:.1f} s",
            flush=True,
        )
    return run


def features(run: Run, stream: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return features [N, d], labels [N] and tasks [N] of a stream, evaluation view."""
    parts = []
    for t, experience in enumerate(stream):
        if len(experience.dataset):
            for z, y in run.strategy.feature_batches(experience.dataset.eval()):
                parts.append((z.cpu(), y, torch.full_like(y, t)))
    z, y, tasks = (torch.cat(one) for one in zip(*parts, strict=True))
    return z, y, tasks


def cosines(vectors: Tensor) -> np.ndarray:
    """Return the cosines [T, T] between vectors [T, D]; a zero vector has 0 with any."""
    unit = F.normalize(vectors.double(), dim=1)
    return (unit @ unit.T).numpy()


def parameters(bank: ModuleBank, matrices: bool = False) -> Tensor:
    """Return each module's parameters as one vector [T, n]; of its matrices alone on request."""
    return torch.stack(
        [
            torch.cat(
                [p.detach().flatten() for p in m.parameters() if p.dim() == 2 or not matrices]
            )
            for m in bank.luca
        ]
    )


@torch.no_grad()
def output_cosines(bank: ModuleBank, z: Tensor) -> np.ndarray:
    """Return the mean over images z [N, d] of the cosine between L_i(z) and L_j(z), [T, T]."""
    total = 0
    for part in z.split(256):
        unit = F.normalize(bank(part).double(), dim=2)
        total = total + torch.einsum("ibd,jbd->ij", unit, unit)
    return (total / len(z)).numpy()


def off_diagonal(matrix: np.ndarray) -> float:
    """Return the mean of a matrix without its diagonal."""
    return float(matrix[~np.eye(len(matrix), dtype=bool)].mean())


def untrained(net: ToscaNet) -> ToscaNet:
    """Return a net of the same settings whose modules are as they were drawn."""
    fresh = ToscaNet(net.backbone, **{name: getattr(net, name) for name in SETTINGS})
    for labels in net.task_classes:
        fresh.add_task(labels)
    return fresh


def similarity(
    plan: list[tuple[str, dict[str, Any]]], figure: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Compare the modules of each stream with each other; draw the mean over seeds.

    :raises ValueError: a stream of a single task.
    """
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    rows = []
    for setting, settings in plan:
        run = learned(settings, least=2)
        z, _, _ = features(run, run.benchmark.train_stream)
        net = run.strategy.model.cpu()
        nets = {setting: net}
        if setting == plan[0][0]:
            nets[UNTRAINED] = untrained(net)
        for name, one in nets.items():
            matrices = {
                "parameters": cosines(parameters(one.bank)),
                "matrices": cosines(parameters(one.bank, matrices=True)),
                "outputs": output_cosines(one.bank.eval(), z),
            }
            for kind, matrix in matrices.items():
                found.setdefault((name, kind), []).append(matrix)
                rows.append(
                    (name, "training images, no test", settings["seed"], kind, off_diagonal(matrix))
                )
    rows.sort(key=lambda row: row[0] == UNTRAINED)  # the control comes last, here and below
    panels = {
        (kind, name): np.mean(found[name, kind], axis=0)
        for kind in SIMILARITIES
        for name in sorted(dict.fromkeys(n for n, _ in found), key=UNTRAINED.__eq__)
    }
    head = head_of(run)
    seeds = sorted({row[2] for row in rows})
    over = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    title = f"Modules of TOSCA on {head['stream']}, mean over {over}"
    plot_similarity(panels, figure, title)
    return _values(rows), head


def tsne(
    plan: list[tuple[str, dict[str, Any]]], figure: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Map test images by t-SNE: raw, after the adapter, after LuCA; draw the first seed.

    :raises ValueError: modules without an adapter in front, or fewer than four test images.
    """
    rows, drawn = [], None
    for _, settings in plan:
        flow = settings["method"]["flow"]
        if flow != "adapter-calibrator":
            raise ValueError(
                f"method.flow={flow}: tsne shows adapter-calibrator, its parts in turn"
            )
        run = learned(settings)
        z, y, tasks = features(run, run.benchmark.test_stream)
        seed = settings["seed"]
        chosen = torch.randperm(len(z), generator=generator(seed, "tsne"))[:TSNE_IMAGES]
        z, y, tasks = z[chosen], y[chosen], tasks[chosen]
        if len(z) < 4:
            raise ValueError(f"{head_of(run)['stream']} has {len(z)} test images: t-SNE needs 4")
        parts = []
        for name, x in views(run.strategy.model.cpu(), z, tasks).items():
            perplexity = min(30.0, (len(x) - 1) / 3)
            points = TSNE(perplexity=perplexity, random_state=TSNE_STATE).fit_transform(x)
            scores = separation(x, y.numpy())
            scores |= {f"map_{k}": v for k, v in separation(points, y.numpy()).items()}
            scores["own_nearest"] = nearest_is_right(x, y.numpy(), tasks.numpy())
            protocol = "per-image" if name == RAW else "oracle-task"
            rows += [(name, protocol, seed, k, v) for k, v in scores.items()]
            parts.append(_points(run, f"{name}\n{_said(scores)}", points, y, tasks))
        if drawn is None:
            drawn = pd.concat(parts, ignore_index=True)
            title = (
                f"t-SNE of {len(z)} test images, {head_of(run)['stream']}, seed {seed}; each image "
                f"through the module of its own task (uses the task label)"
            )
            plot_maps(drawn, figure, title, drawn["group_is"].iloc[0])
    return _values(rows), head_of(run)


@torch.no_grad()
def views(net: ToscaNet, z: Tensor, tasks: Tensor) -> dict[str, np.ndarray]:
    """Return raw features [N, d], and adapter and LuCA outputs through each image's own task."""
    adapted, whole = torch.empty_like(z), torch.empty_like(z)
    for t, module in enumerate(net.bank.luca):
        own = tasks == t
        adapted[own], whole[own] = module.adapter(z[own]), module(z[own])
    return {RAW: z.numpy(), "adapter alone": adapted.numpy(), "LuCA": whole.numpy()}


def separation(x: np.ndarray, y: np.ndarray) -> dict[str, float | None]:
    """Return silhouette score and leave-one-out 1-NN accuracy of x [N, D] by class y [N].

    The silhouette is undefined where all images are of one class, or each of its own.
    """
    several = 2 <= len(set(y.tolist())) < len(y)
    return {
        "silhouette": float(silhouette_score(x, y)) if several else None,
        "nearest": nearest_is_right(x, y, np.zeros(len(y))),
    }


def nearest_is_right(x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> float | None:
    """Return how often the nearest other image [N, D] of the same group has the same class.

    Images that are alone in their group are left out.
    """
    right = []
    for group in np.unique(groups):
        own = groups == group
        if own.sum() > 1:
            near = NearestNeighbors(n_neighbors=1).fit(x[own]).kneighbors(return_distance=False)
            right += (y[own][near[:, 0]] == y[own]).tolist()
    return float(np.mean(right)) if right else None


def head_of(run: Run) -> dict[str, Any]:
    """Return stream and backbone of a run, as the head of a table names them."""
    backbone = run.backbone
    return {
        "stream": label_of(run.settings["stream"]),
        "backbone": f"{backbone.name}, fingerprint {backbone.fingerprint[:12]}",
        "tasks": len(run.benchmark.train_stream),
    }


def _said(scores: dict[str, float | None]) -> str:
    texts = [f"1-NN {100 * scores['nearest']:.1f} %"]
    if scores["silhouette"] is not None:
        texts.insert(0, f"silhouette {scores['silhouette']:.3f}")
    if scores["own_nearest"] is not None:
        texts.append(f"within the task {100 * scores['own_nearest']:.1f} %")
    return ", ".join(texts)


def _points(run: Run, panel: str, points: np.ndarray, y: Tensor, tasks: Tensor) -> pd.DataFrame:
    names, label = run.benchmark.class_names, y.tolist()
    by_class = len(names) <= CLASS_COLOURS
    frame = pd.DataFrame(
        {
            "panel": panel,
            "x": points[:, 0],
            "y": points[:, 1],
            "group": [str(names[c]) for c in label] if by_class else tasks.tolist(),
            "group_is": "class" if by_class else "task",
            "class": [str(names[c]) for c in label],
            "task": tasks.tolist(),
        }
    )
    return frame.sort_values("group", kind="stable")


def _values(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["setting", "protocol", "seed", "metric", "value"])
