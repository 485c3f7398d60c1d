"""Ways to train the modules for the study of selection rules, and what they then say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.selection_rules import Evidence
from tosca_avalanche.backbones import FrozenBackbone
from tosca_avalanche.features import FeatureData
from tosca_avalanche.learner import Recipe
from tosca_avalanche.modules import ToscaNet
from tosca_avalanche.modules.gaussian import SharedGaussian
from tosca_avalanche.modules.slda_net import SLDANet
from tosca_avalanche.modules.tosca_net import ROUTED
from tosca_avalanche.seeding import generator
from tosca_avalanche.selection import entropy

PART = 256
REDRAWS = 64


class Negatives:
    """Features that belong to no class of the task: what a module should be unsure of.

    :param kind: "gaussian" draws them around means of earlier classes with the shared
        covariance (statistics only, no image is kept); "mixup" takes means of two images of
        different classes of the task.
    """

    def __init__(self, kind: str, dim: int, seed: int) -> None:
        self.kind, self.generator = kind, generator(seed, "negatives")
        self.seen, self.factor = SharedGaussian(dim), torch.eye(dim)
        self.means, self.data = torch.zeros(0, dim), FeatureData(torch.zeros(0), torch.zeros(0))

    def start(self, data: FeatureData) -> None:
        """Take up a task; what was known before is frozen for its length."""
        self.data = data
        self.means = self.seen.means.float()
        if len(self.means):
            covariance = self.seen.covariance
            jitter = 1e-4 * covariance.trace() / len(covariance)
            eye = torch.eye(len(covariance), dtype=covariance.dtype)
            self.factor = torch.linalg.cholesky(covariance + jitter * eye).float()

    def stop(self) -> None:
        """Add the task's statistics."""
        first = len(self.seen.means)
        labels = sorted(set(self.data.y.tolist()))
        self.seen.grow(len(labels))
        place = {label: first + i for i, label in enumerate(labels)}
        self.seen.update(self.data.z, torch.tensor([place[y] for y in self.data.y.tolist()]))

    def draw(self, n: int) -> Tensor | None:
        """Return n negatives [n, d]; None where there can be none yet."""
        g = self.generator
        if self.kind == "gaussian":
            if not len(self.means):
                return None
            which = torch.randint(len(self.means), (n,), generator=g)
            noise = torch.randn(n, self.means.shape[1], generator=g)
            return self.means[which] + noise @ self.factor.T
        one, two = torch.randint(len(self.data.y), (2, 4 * n), generator=g)
        differ = self.data.y[one] != self.data.y[two]
        one, two = one[differ][:n], two[differ][:n]
        return (self.data.z[one] + self.data.z[two]) / 2 if len(one) else None


@dataclass(frozen=True)
class UnsureRecipe(Recipe):
    """TOSCA's recipe plus: entropy over the task's own classes, as high as can be on negatives."""

    negatives: Negatives = field(default_factory=lambda: Negatives("mixup", 1, 0))
    weight: float = 1.0

    def penalised(self, net: ToscaNet, loss: Tensor) -> Tensor:
        """Return the loss with the l1 term, minus the mean entropy of the negatives."""
        z = self.negatives.draw(self.batch_size)
        if z is not None:
            logits = net.head(net.bank.current(z))[:, -len(net.task_classes[-1]) :]
            loss = loss - self.weight * entropy(logits).mean()
        return super().penalised(net, loss)


@dataclass(frozen=True)
class Training:
    """A named way of training: settings of the net, and negatives where it has any."""

    name: str
    settings: dict[str, Any]
    negatives: str | None = None


TRAINED = {key: value for key, value in ROUTED.items() if key != "selection"}
OWN = {key: value for key, value in TRAINED.items() if key != "rows"}
TRAININGS = {
    t.name: t
    for t in (
        Training("authors", {}),
        Training("own classes, sigma 16", OWN),
        Training("+ trained rows (preset)", TRAINED),
        Training("+ prototype start", {**TRAINED, "head_init": "prototype"}),
        Training("+ Gaussian negatives", TRAINED, "gaussian"),
        Training("+ mixup negatives", TRAINED, "mixup"),
    )
}


def learn(
    training: Training, backbone: FrozenBackbone, tasks: list[FeatureData], seed: int
) -> ToscaNet:
    """Return a net that learned the tasks one after another."""
    net = ToscaNet(backbone, selection="gaussian-ridge", seed=seed, **training.settings)
    recipe, negatives = Recipe(), None
    if training.negatives:
        negatives = Negatives(training.negatives, backbone.embed_dim, seed)
        recipe = UnsureRecipe(negatives=negatives)
    for data in tasks:
        if negatives:
            negatives.start(data)
        recipe.learn(net, data, progress=False)
        if negatives:
            negatives.stop()
    return net


@torch.no_grad()
def evidence(net: ToscaNet, tasks: list[FeatureData], z: Tensor, seed: int) -> Evidence:
    """Return what a net says of features z [N, d]; ``tasks`` are its training features."""
    slda = SLDANet(net.backbone)
    for data in tasks:
        slda.add_task(sorted(set(data.y.tolist())))
        slda.learn(data.z, data.y)
    weights, biases = slda.solve()
    parts = z.split(PART)
    own = []
    for t, data in enumerate(tasks):
        rows = net.head.rows[net.row_tasks() == t]
        cosines = F.normalize(net.bank.luca[t](data.z)) @ F.normalize(rows).T
        own.append(cosines.amax(dim=1))
    return Evidence(
        logits=net.head(net.bank(z)),
        redrawn=_redrawn(net, z, seed),
        sigma=net.head.sigma.item(),
        task_of=net.row_tasks(),
        centre=torch.stack([v.mean() for v in own]),
        spread=torch.stack([v.std() if len(v) > 1 else v.new_ones(()) for v in own]).clamp_min(
            1e-6
        ),
        slda=(z.to(weights) @ weights.T + biases).float(),
        gaussians=torch.cat([net.router.gaussians.log_likelihood(part) for part in parts]),
        ridge=net.router.regression(z),
    )


def _redrawn(net: ToscaNet, z: Tensor, seed: int) -> Tensor:
    """Return logits [T, N, C] with prototypes of other tasks' classes seen through module t.

    The mean of L_t over draws from a class's Gaussian; a class's own module keeps its row.
    """
    g = generator(seed, "redrawn")
    means = net.router.gaussians.means.float()
    factors = torch.linalg.cholesky(net.router.gaussians.covariances()).float()
    noise = torch.randn(REDRAWS, means.shape[1], generator=g)
    draws = means.unsqueeze(1) + noise @ factors.transpose(1, 2)  # [C, REDRAWS, d]
    tasks = net.row_tasks().unsqueeze(1)
    out = []
    for t, module in enumerate(net.bank.luca):
        seen = torch.stack([module(own).mean(dim=0) for own in draws])
        rows = torch.where(tasks == t, net.head.rows, seen)
        out.append(net.head.sigma * F.normalize(module(z)) @ F.normalize(rows).T)
    return torch.stack(out)
