"""Why an image got its answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tosca_avalanche.errors import ModelError
from tosca_avalanche.learner.labels import Label, Labels
from tosca_avalanche.modules.tosca_net import ToscaNet
from tosca_avalanche.selection import entropy


@dataclass(frozen=True)
class Prototype:
    """A head row near an image.

    :param label: its class.
    :param task: the task that it was learned in.
    :param cosine: cosine between it and the image in the space of the module that answered.
    """

    label: Label
    task: int
    cosine: float


@dataclass(frozen=True)
class Explanation:
    """Which module answered for an image, how sure it was, and what lay near.

    :param label: the answer, with its ``probability`` over the classes learned.
    :param runner_up: the class that came second, None where there is one class.
    :param margin: probability of the answer minus that of the runner-up.
    :param module: the task whose module answered.
    :param entropies: entropy (nats) of each module's softmax over the classes, by task.
    :param entropy_margin: entropy of the surest other module minus that of the one that
        answered: negative where the selection rule looked at something else, None where
        there is one module.
    :param nearest: the nearest prototypes, nearest first.
    """

    label: Label
    probability: float
    runner_up: Label | None
    margin: float
    module: int
    entropies: list[float]
    entropy_margin: float | None
    nearest: list[Prototype]


@torch.no_grad()
def explanation(
    net: ToscaNet, labels: Labels, outputs: Tensor, z: Tensor, nearest: int
) -> Explanation:
    """Return why one image got its answer, right after the net gave it.

    :param outputs: [width] of the image.
    :param z: its features [1, d].
    :param nearest: how many prototypes to name.
    """
    if net.last_modules is None:
        raise ModelError(f"selection={net.selection!r} picks no single module to explain")
    module, z = int(net.last_modules[0]), z.to(net.device)
    entropies = entropy(net.module_logits(z))[:, 0].tolist()
    others = [h for t, h in enumerate(entropies) if t != module]
    p, order = torch.softmax(outputs[net.classes].double(), 0).sort(descending=True)
    ranked = labels.labels([net.classes[i] for i in order.tolist()]).tolist()
    cosines = F.cosine_similarity(net.bank.luca[module](z), net.head.rows)
    tasks = net.row_tasks().tolist()
    rows = labels.labels(net.row_labels).tolist()
    return Explanation(
        label=ranked[0],
        probability=float(p[0]),
        runner_up=ranked[1] if len(ranked) > 1 else None,
        margin=float(p[0] - p[1]) if len(ranked) > 1 else float(p[0]),
        module=module,
        entropies=entropies,
        entropy_margin=min(others) - entropies[module] if others else None,
        nearest=[
            Prototype(rows[i], tasks[i], float(cosines[i]))
            for i in cosines.argsort(descending=True)[:nearest].tolist()
        ],
    )
