"""MOS as a plain torch net: merged adapters, an aligned head, a set chosen for each image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.adapter_net import AdapterPerTaskNet
from tosca_avalanche.modules.adapters import AdapterSet
from tosca_avalanche.modules.alignment import align_head, gaussian_of
from tosca_avalanche.modules.linear_head import LinearHead
from tosca_avalanche.seeding import generator

COVARIANCES = ("full", "diagonal")
MERGES = ("step", "none")
EVALUATIONS = 4


class MOSNet(AdapterPerTaskNet):
    """Model surgery (AAAI 2025).

    A task's adapters start from those of the task before and are pulled to the mean of
    the earlier sets after every step (:meth:`merge`). One linear head serves all tasks;
    after each task but the first it is aligned on Gaussian samples of every class
    (:func:`align_head`). At test each image finds its set of adapters by itself
    (:func:`refine`).

    The authors' code merges in every block of every forward, in evaluation too, so its
    stored sets change while testing; here a set changes in training only.

    :param width: of the adapters.
    :param merge: "step" (the paper) or "none".
    :param separation: weight of the term that keeps features apart from the stored means.
    :param covariance: "full", or "diagonal" (the authors' choice on ImageNet-A).
    :param align_epochs: of the head's alignment; 0 leaves it out.
    :param align_samples: Gaussian samples per class in an alignment epoch, and its batch
        (five times the training batch in the authors' code).
    :param align_lr: its learning rate.

    Memory: a class keeps a d x d covariance (2.4 MB at d = 768), or d numbers.
    """

    anchors: Tensor
    means: Tensor
    covariances: Tensor

    def __init__(
        self,
        backbone: FrozenBackbone,
        *,
        width: int = 16,
        merge: str = "step",
        separation: float = 0.1,
        covariance: str = "full",
        align_epochs: int = 30,
        align_samples: int = 240,
        align_lr: float = 5e-3,
        seed: int = 0,
    ) -> None:
        super().__init__(backbone, width=width, seed=seed)
        for name, value, allowed in (
            ("merge", merge, MERGES),
            ("covariance", covariance, COVARIANCES),
        ):
            if value not in allowed:
                raise ValueError(f"MOSNet: {name}={value!r} is unknown; choose one of {allowed}")
        self.merging, self.separation, self.covariance = merge, separation, covariance
        self.align_epochs, self.align_samples = align_epochs, align_samples
        self.align_lr = align_lr
        self._kept: list[tuple[Tensor, Tensor]] = []
        self._batch: Tensor | None = None
        self._earlier: list[Tensor] | None = None

    def build(self, dim: int) -> None:
        """Make the head and room for statistics."""
        self.head = LinearHead(dim)
        shape = (0, dim, dim) if self.covariance == "full" else (0, dim)
        self.register_buffer("anchors", torch.zeros(0, dim))
        self.register_buffer("means", torch.zeros(0, dim))
        self.register_buffer("covariances", torch.zeros(shape))

    def new_set(self) -> AdapterSet:
        """Make the next set, equal to the one before."""
        adapters = super().new_set()
        if len(self.sets):
            adapters.load_state_dict(self.sets[-1].state_dict())
        return adapters

    def grow(self, labels: list[int]) -> None:
        """Add a set, head rows, and room for statistics."""
        t, self._earlier = self.n_tasks, None
        super().grow(labels)
        self.head.grow(len(labels), generator(self.seed, "head", t))
        for name in ("anchors", "means", "covariances"):
            old = getattr(self, name)
            setattr(self, name, torch.cat([old, old.new_zeros(len(labels), *old.shape[1:])]))

    def task_outputs(self, x: Tensor) -> Tensor:
        """Return outputs [B, width] over the newest task's classes for its images.

        In evaluation mode, amid training, over all seen classes under the newest set.
        """
        self._batch = self.adapted_features(x)
        if not self.training:
            return self.to_outputs(self.merge_rows(self.head(self._batch)))
        return self.task_to_outputs(self.head(self._batch)[:, -len(self.task_classes[-1]) :])

    def separation_loss(self) -> Tensor:
        """Return the term that sets the last batch's features apart, weighted.

        Rows M: the stored means of earlier classes, then the batch's features, raw;
        S = M M^T / 0.8; cross-entropy with row i's target i. Source: MOS, authors' code.
        """
        assert self._batch is not None
        rows = torch.cat([self.means[: -len(self.task_classes[-1])], self._batch])
        target = torch.arange(len(rows), device=rows.device)
        return self.separation * F.cross_entropy(rows @ rows.T / 0.8, target)

    def learn(self, z: Tensor, y: Tensor) -> None:
        """Keep features and labels [B] until the end of the task."""
        self._kept.append((z, y))

    def features_by_class(self) -> list[Tensor]:
        """Return the kept features of each class of the newest task, and forget them."""
        z, y = (torch.cat(parts) for parts in zip(*self._kept, strict=True))
        self._kept = []
        return [z[y == label] for label in self.task_classes[-1]]

    @torch.no_grad()
    def merge(self) -> None:
        """Pull the newest set to the mean of the earlier ones: w <- 0.9 w + 0.1 mean."""
        if self.merging == "none" or len(self.sets) < 2:
            return
        if self._earlier is None:  # frozen: their mean is the same for the whole task
            each = zip(*(s.parameters() for s in self.sets[:-1]), strict=True)
            self._earlier = [torch.stack(p).mean(dim=0) for p in each]
        for current, mean in zip(self.sets[-1].parameters(), self._earlier, strict=True):
            current.mul_(0.9).add_(mean, alpha=0.1)

    @property
    def statistics_from(self) -> list[FrozenBackbone]:
        """The first set, for the prototypes that choose, and the newest."""
        return [self._extractors[0], self._extractors[-1]]

    def end_task(self) -> None:
        """Store the statistics of the task's classes and align the head."""
        first = len(self.means) - len(self.task_classes[-1])
        for row, z in enumerate(self.features_by_class(), start=first):
            anchor, own = z.double().chunk(2, dim=1)
            self.anchors[row] = anchor.mean(dim=0)
            self.means[row], self.covariances[row] = gaussian_of(own, self.covariance)
        if self.n_tasks > 1 and self.align_epochs:
            columns = [self.classes.index(label) for label in self.row_labels]
            align_head(
                self.head,
                self.means,
                self.covariances,
                targets=torch.tensor(columns, device=self.device),
                merge_rows=self.merge_rows,
                epochs=self.align_epochs,
                samples=self.align_samples,
                lr=self.align_lr,
                draws=generator(self.seed, "align", self.n_tasks),
            )

    def classify(self, z: Tensor, task_ids: Tensor | None = None) -> Tensor:
        """Return outputs [B, width] for features z [B, T d] under all sets.

        log(softmax(head) + softmax(T cos)): its softmax is the mean of the head's answer
        under the image's own set and that of the first set's prototypes.
        """
        if not self.n_tasks:
            return self.to_outputs(z)
        f = z.reshape(len(z), self.n_tasks, -1)
        cosines = F.linear(F.normalize(f[:, 0], dim=-1), F.normalize(self.anchors, dim=-1))
        logits, self.last_modules = refine(f, cosines, self.head, self.row_tasks())
        own = self.merge_rows(logits).log_softmax(dim=1)
        first = (self.n_tasks * self.merge_rows(cosines)).log_softmax(dim=1)
        return self.to_outputs(torch.logaddexp(own, first))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the last batch behind: torch can't copy a tensor of a graph."""
        return {**self.__dict__, "_batch": None, "_earlier": None}


def refine(
    features: Tensor, cosines: Tensor, head: Callable[[Tensor], Tensor], row_tasks: Tensor
) -> tuple[Tensor, Tensor]:
    """Let each image look for its own set: return the last logits [B, R] and their sets [B].

    Start with the task of the best cosine to the first set's prototypes; then the head's
    answer under a set names the next set, until it names itself, or after 4 evaluations.
    Source: MOS, self-refined adapter retrieval. All images at once: one that has found
    its set goes on finding it, and an image's path depends on nothing but itself.

    :param features: [B, T, d] under all sets.
    :param cosines: [B, R] to the prototypes under set 0.
    :param row_tasks: task of each row [R].
    """
    each = torch.arange(len(features), device=features.device)
    chosen = row_tasks[cosines.argmax(dim=1)]
    for _ in range(EVALUATIONS):
        current = chosen
        logits = head(features[each, current])
        chosen = row_tasks[logits.argmax(dim=1)]
        if torch.equal(chosen, current):
            break
    return logits, current
