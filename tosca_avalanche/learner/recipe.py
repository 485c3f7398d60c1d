"""How TOSCA learns one task: the parts that the strategy, the plugin and the classifier share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler
from tqdm.auto import tqdm

from tosca_avalanche.errors import PIXELS, TrainingError
from tosca_avalanche.features.loaders import EpochOrder, FeatureData, FeatureLoader
from tosca_avalanche.modules.class_means import ClassMeans
from tosca_avalanche.modules.tosca_net import ToscaNet

SPARSITIES = ("l1", "proximal")
# images per pass and per evaluation step: rounding follows it, and the strategy has the same
EVAL_BATCH = 48
Batches = Callable[[], Iterable[Sequence[Tensor]]]
"""Makes batches (features [B, d], labels [B], ...) of a task's training images, evaluation view."""


@dataclass(frozen=True)
class Recipe:
    """TOSCA's training of one task, the authors' settings by default.

    Before a task: :meth:`begin`. In each step: :meth:`penalised` on the loss, and
    :meth:`after_step` after the update. After the task: :meth:`finish`. :meth:`learn` is
    the whole loop on features; Avalanche's strategies call the parts from its hooks.

    Source: TOSCA (TMLR 2026), training, and the authors' code.

    :param lr: learning rate of SGD, with ``momentum`` and ``weight_decay``, a new
        optimiser for each task; cosine per epoch to 1e-8.
    :param epochs: passes over a task's images.
    :param batch_size: images per step.
    :param l1: lambda of the term lambda * sum |theta| over all parameters of the current
        module (a sum, not a mean; the head is left out).
    :param sparsity: "l1" adds the term to the loss (sub-gradient SGD as the authors do:
        small values, no exact zeros); "proximal" soft-thresholds by lr * lambda after each
        update instead, which gives exact zeros.
    """

    lr: float = 0.025
    momentum: float = 0.9
    weight_decay: float = 0.0
    epochs: int = 20
    batch_size: int = 48
    l1: float = 5e-4
    sparsity: str = "l1"

    def __post_init__(self) -> None:
        if self.sparsity not in SPARSITIES:
            raise ValueError(f"sparsity={self.sparsity!r} is unknown; choose one of {SPARSITIES}")
        for name, least in (("lr", 0), ("l1", 0), ("epochs", 0), ("batch_size", 1)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be {least} or more, got {getattr(self, name)}")

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return the authors' SGD."""
        return SGD(parameters, self.lr, self.momentum, weight_decay=self.weight_decay)

    def begin(self, net: ToscaNet, labels: list[int], batches: Batches) -> None:
        """Add a task's module and head rows; with prototype rows, set them."""
        net.add_task(labels)
        if net.head_init == "prototype":
            net.set_prototypes(self.prototypes(net, batches()))

    def penalised(self, net: ToscaNet, loss: Tensor) -> Tensor:
        """Return the loss with the l1 term."""
        if self.sparsity == "l1" and self.l1:
            return loss + self.l1 * net.bank.current.l1_norm()
        return loss

    def after_step(self, net: ToscaNet, lr: float) -> None:
        """Take the proximal step of the l1 term."""
        if self.sparsity == "proximal" and self.l1:
            net.bank.current.soft_threshold(lr * self.l1)

    def finish(self, net: ToscaNet, batches: Batches, place: str = "") -> None:
        """Store the task's prototypes and statistics, and freeze its module.

        :param place: of the last step, for errors; by default the task.
        :raises TrainingError: weights or prototypes that the last step spoiled: no loss
            comes after it.
        """
        place = place or f"task {net.n_tasks - 1}"
        refuse_bad_weights(net.trainable(), place)
        prototypes = self.prototypes(net, batches(), net.observe)
        refuse_bad_weights([prototypes], place, "the class means of the new module")
        net.finish_task(prototypes)

    @staticmethod
    @torch.no_grad()
    def prototypes(
        net: ToscaNet,
        batches: Iterable[Sequence[Tensor]],
        observe: Callable[[Tensor, Tensor], None] | None = None,
    ) -> Tensor:
        """Return the mean L(z) [classes, d] of each class of the newest task.

        :param observe: also called with each batch of features and labels.
        """
        means = ClassMeans(net.backbone.embed_dim)
        for z, y, *_ in batches:
            z = z.to(net.device)
            means.update(net.bank.current(z), y)
            if observe is not None:
                observe(z, y)
        return means.mean(net.task_classes[-1])

    def learn(self, net: ToscaNet, data: FeatureData, progress: bool | None = None) -> None:
        """Learn a task from its features: begin, epochs of seeded order, finish.

        :param progress: a bar with rate and ETA: None on a terminal only, True, False.
        :raises TrainingError: a loss, weights or prototypes that are not finite.
        """
        task, place = net.n_tasks, ""

        def in_order() -> FeatureLoader:
            return FeatureLoader([data], EVAL_BATCH)

        self.begin(net, sorted(set(data.y.tolist())), in_order)
        optimizer = self.optimizer(net.trainable())
        scheduler = cosine_schedule(optimizer, self.epochs)
        order = EpochOrder(len(data.y), net.seed, task)
        loader = FeatureLoader([data], self.batch_size, order)
        net.train()
        with _bar(len(loader) * self.epochs, task, progress) as bar:
            for epoch in range(self.epochs):
                order.epoch = epoch
                for i, (z, y) in enumerate(loader):
                    optimizer.zero_grad()
                    loss = F.cross_entropy(net.classify(z.to(net.device)), y.to(net.device))
                    loss = self.penalised(net, loss)
                    place = f"task {task}, epoch {epoch}, batch {i}"
                    refuse_bad_loss(loss, place)
                    loss.backward()
                    optimizer.step()
                    self.after_step(net, optimizer.param_groups[0]["lr"])
                    bar.update()
                scheduler.step()
        self.finish(net, in_order, place)
        net.eval()


def cosine_schedule(optimizer: Optimizer, epochs: int) -> LRScheduler:
    """Return the cosine per epoch down to 1e-8."""
    return CosineAnnealingLR(optimizer, T_max=max(1, epochs), eta_min=1e-8)


def refuse_bad_loss(loss: Tensor, place: str) -> None:
    """Refuse a loss that is not finite before it spoils the weights.

    :raises TrainingError: names the place.
    """
    if not torch.isfinite(loss).all():
        raise TrainingError(
            f"the loss became {loss.item()} in {place}; lower the learning rate or look at the "
            f"images of that batch"
        )


def refuse_bad_weights(weights: Iterable[Tensor], place: str, what: str = "the weights") -> None:
    """Refuse weights that the step before spoiled.

    :param place: of that step.
    :raises TrainingError: names the place.
    """
    if not all(torch.isfinite(w).all() for w in weights):
        raise TrainingError(f"{what} are not finite after {place}; lower the learning rate")


def refuse_bad_values(values: Tensor, what: str, place: str, advice: str = PIXELS) -> Tensor:
    """Return values [B, ...] as they are, where all are finite.

    :param advice: where to look.
    :raises TrainingError: names the place and the image's position in the batch.
    """
    good = torch.isfinite(values).flatten(1).all(dim=1)
    if not good.all():
        first = int((~good).nonzero()[0])
        raise TrainingError(
            f"{what} is not finite in {place}, image {first} of the batch; {advice}"
        )
    return values


def warn_of_one_class(labels: Sequence[int | str], task: int) -> None:
    """Say that a single class gives no gradient, where classes of other tasks don't compete."""
    if len(labels) == 1:
        warnings.warn(
            f"task {task} has the single class {labels[0]} and nothing to tell it from: "
            f"cross-entropy is 0 and trains nothing; the class is learned only as far as the "
            f"method keeps statistics",
            stacklevel=3,
        )


def warn_of_one_task(
    given: Sequence[int], right: Sequence[int], task_classes: Sequence[Sequence[int]]
) -> None:
    """Say that images of several tasks all got answers of one: a collapse, no fault of the data.

    :param given: label answered for each image.
    :param right: its own label.
    :param task_classes: labels of each task.
    """
    task_of = {label: t for t, labels in enumerate(task_classes) for label in labels}
    answered = {task_of[label] for label in given if label in task_of}
    tested = {task_of[label] for label in right if label in task_of}
    if len(answered) == 1 and len(tested) > 1:
        warnings.warn(
            f"all {len(given)} answers are classes of task {answered.pop()} though these are "
            f"images of {len(tested)} tasks: the choice between tasks has collapsed; look at the "
            f"learning rate and at how earlier tasks keep their scale, not at the data",
            stacklevel=3,
        )


def _bar(total: int, task: int, progress: bool | None) -> Any:
    hidden = None if progress is None else not progress
    return tqdm(total=total, desc=f"task {task}", unit="batch", disable=hidden, leave=False)
