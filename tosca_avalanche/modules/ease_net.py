"""EASE as a plain torch net: one subspace per task, prototypes in all of them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.adapter_net import AdapterPerTaskNet
from tosca_avalanche.modules.class_means import ClassMeans
from tosca_avalanche.modules.cosine_head import CosineHead
from tosca_avalanche.seeding import generator


class EASENet(AdapterPerTaskNet):
    """Expandable subspace ensemble (CVPR 2024).

    Each task trains a fresh set of adapters with a throw-away cosine head over its own
    classes. Its classes get real prototypes (mean raw features, test transform) in all
    subspaces so far; the prototypes of earlier classes in the new subspace, whose images
    are gone, are synthesised from similarities (:func:`complement`).

    :param width: of the adapters.
    :param alpha: weight of the other subspaces, shared evenly among them.
    """

    gives_probabilities = False  # sums of cosines, at no scale of their own

    def __init__(
        self, backbone: FrozenBackbone, *, width: int = 64, alpha: float = 0.1, seed: int = 0
    ) -> None:
        super().__init__(backbone, width=width, seed=seed)
        self.alpha = alpha
        self.proxy: CosineHead | None = None
        self._weighted: tuple[Any, Tensor] | None = None
        self._means: ClassMeans | None = None

    def build(self, dim: int) -> None:
        """Nothing is shared by the tasks."""

    def grow(self, labels: list[int]) -> None:
        """Add a fresh set and a fresh proxy head, and room for the prototypes."""
        t = self.n_tasks
        super().grow(labels)
        self.proxy = CosineHead(self.backbone.embed_dim).to(self.device)
        self.proxy.grow(len(labels), generator=generator(self.seed, "proxy", t))
        real = torch.zeros(len(labels), t + 1, self.backbone.embed_dim, device=self.device)
        self.register_buffer(f"prototypes_{t}", real)

    def task_outputs(self, x: Tensor) -> Tensor:
        """Return the proxy head's outputs [B, width] for images of the newest task."""
        assert self.proxy is not None
        return self.task_to_outputs(self.proxy(self.adapted_features(x)))

    def finish_adapting(self) -> None:
        """Freeze the set and discard the proxy head."""
        super().finish_adapting()
        self.proxy = None

    def end_task(self) -> None:
        """Turn the kept features into the prototypes of the task's classes."""
        assert self._means is not None
        own = getattr(self, f"prototypes_{self.n_tasks - 1}")
        own.copy_(self._means.mean(self.task_classes[-1]).reshape(own.shape))
        self._means = None

    def learn(self, z: Tensor, y: Tensor) -> None:
        """Add features [B, (t + 1) d] and labels [B] of the newest task to its class means."""
        if self._means is None:
            self._means = ClassMeans(z.shape[1])
        self._means.update(z, y)

    @property
    def real_prototypes(self) -> list[Tensor]:
        """Prototypes [classes of t, t + 1, d] of each task t, in subspaces 0..t."""
        return [getattr(self, f"prototypes_{t}") for t in range(self.n_tasks)]

    def classify(self, z: Tensor, task_ids: Tensor | None = None) -> Tensor:
        """Return outputs [B, width] for features z [B, T d] of all subspaces."""
        if not self.n_tasks:
            return self.to_outputs(z)
        f = F.normalize(z.reshape(len(z), self.n_tasks, -1), dim=-1)
        return self.to_outputs(self.merge_rows(F.linear(f.flatten(1), self.weighted_prototypes())))

    def weighted_prototypes(self) -> Tensor:
        """Return the normalised prototypes times their weights [R, T d]; made once per task."""
        real = self.real_prototypes
        mark = [(p.data_ptr(), p._version, p.device) for p in real]
        if self._weighted is None or self._weighted[0] != mark:
            prototypes = F.normalize(complement(real), dim=-1)
            weights = reweighting(self.row_tasks(), self.n_tasks, self.alpha)
            self._weighted = mark, (prototypes * weights.unsqueeze(-1)).flatten(1)
        return self._weighted[1]

    def take_shape(self, rest: dict[str, Any]) -> None:
        """Drop the proxy head, as the saved net had."""
        super().take_shape(rest)
        self.proxy = None


def complement(real: list[Tensor]) -> Tensor:
    """Return the prototypes [R, T, d] of all rows in all subspaces, missing ones synthesised.

    For class o of task i and a later subspace n::

        p[o, n] = sum_c softmax_c(cos(p[o, i], p[c, i])) p[c, n]

    with c over the classes of tasks n..t, whose prototypes are real in both subspaces;
    temperature 1. Source: EASE, eq. 8 to 10. Redone after every task, since the newest
    classes take part.

    :param real: prototypes [classes of t, t + 1, d] of each task t, in subspaces 0..t.
    """
    tasks, dim = len(real), real[0].shape[-1]
    sizes = [len(p) for p in real]
    padded = torch.cat(
        [torch.cat([p, p.new_zeros(len(p), tasks - p.shape[1], dim)], 1) for p in real]
    )
    of_task = torch.arange(tasks, device=padded.device).repeat_interleave(
        torch.tensor(sizes, device=padded.device)
    )
    full = padded.clone()
    unit = F.normalize(padded, dim=-1)
    for i in range(tasks - 1):
        own, later = of_task == i, of_task > i
        similarity = unit[own, i] @ unit[later, i].T
        # [subspaces after i, classes of later tasks]: real in subspace n from task n on
        there = of_task[later] >= torch.arange(i + 1, tasks, device=padded.device).unsqueeze(1)
        masked = similarity.unsqueeze(0).masked_fill(~there.unsqueeze(1), -torch.inf)
        made = torch.einsum("noc,cnd->ond", masked.softmax(dim=-1), padded[later, i + 1 :])
        full[own, i + 1 :] = made
    return full


def reweighting(row_tasks: Tensor, tasks: int, alpha: float) -> Tensor:
    """Return w [R, T]: 1 in a row's own subspace, alpha / (T - 1) in the others.

    Source: EASE, subspace ensemble with t = T - 1, the 0-based current task, at least 1.
    """
    weights = torch.full(
        (len(row_tasks), tasks), alpha / max(tasks - 1, 1), device=row_tasks.device
    )
    return weights.scatter(1, row_tasks.unsqueeze(1), 1.0)
