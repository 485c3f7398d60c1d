"""Ways to find the module that answers, as pure functions of what is known at test time.

Each rule takes an :class:`Evidence` and returns class scores [N, C], whose softmax is the
posterior and whose largest is the answer, and the task that answered [N]. Rules know
nothing of labels or tasks of the images. docs/selection.md has the equations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tosca_avalanche.selection import entropy, lowest, own_log_posterior, select_entropy


@dataclass
class Evidence:
    """What the learned model says of N images, T tasks, C classes (one row each, by task).

    :param logits: [T, N, C], module t's logits of all classes.
    :param redrawn: the same with other tasks' rows re-expressed in module t's space.
    :param sigma: the head's scale.
    :param task_of: [C], the task of each class.
    :param centre: [T], mean over task t's training images of the best own cosine under module
        t, with its standard deviation ``spread`` [T].
    :param slda: [N, C], linear discriminant with one covariance.
    :param gaussians: [N, C], log-likelihood under class Gaussians.
    :param ridge: [N, C], ridge regression on random features, weighted.
    """

    logits: Tensor
    redrawn: Tensor
    sigma: float
    task_of: Tensor
    centre: Tensor
    spread: Tensor
    slda: Tensor
    gaussians: Tensor
    ridge: Tensor

    @property
    def foreign(self) -> Tensor:
        """[T, 1, C], true where a class is not of the task."""
        tasks = torch.arange(len(self.logits)).unsqueeze(1)
        return (tasks != self.task_of).unsqueeze(1)

    @property
    def own(self) -> Tensor:
        """[T, N, C], module t's logits of its own classes, -inf elsewhere."""
        return self.logits.masked_fill(self.foreign, -torch.inf)

    def per_task(self, scores: Tensor) -> Tensor:
        """Return log sum exp of class scores [N, C] over each task's classes, [T, N]."""
        return scores.masked_fill(self.foreign, -torch.inf).logsumexp(dim=2)


Answer = tuple[Tensor, Tensor]


def answered_by(logits: Tensor, task: Tensor) -> Answer:
    """Return the logits of the chosen module, [N, C], and the choice."""
    return logits[task, torch.arange(len(task))], task


def entropy_all(e: Evidence) -> Answer:
    """The paper's words: lowest entropy of the softmax over all classes."""
    return answered_by(e.logits, select_entropy(e.logits))


def entropy_redrawn(e: Evidence) -> Answer:
    """The same, every class's prototype re-expressed in each module's own space."""
    return answered_by(e.redrawn, select_entropy(e.redrawn))


def entropy_own(e: Evidence) -> Answer:
    """Lowest entropy over the module's own classes, relative to its largest possible value."""
    own = e.own
    sizes = (~e.foreign).sum(dim=2).clamp_min(2).log()
    finite = own.masked_fill(e.foreign, -1e4)
    return answered_by(own, lowest(entropy(finite) / sizes))


def energy(e: Evidence) -> Answer:
    """Largest log sum exp of the module's own logits."""
    return answered_by(e.own, lowest(-e.own.logsumexp(dim=2)))


def max_cosine(e: Evidence) -> Answer:
    """Largest cosine to an own row."""
    return answered_by(e.own, lowest(-e.own.amax(dim=2)))


def margin(e: Evidence) -> Answer:
    """Largest gap between the best two own logits."""
    best = e.own.masked_fill(e.foreign, -1e4).topk(2, dim=2).values
    return answered_by(e.own, lowest(best[..., 1] - best[..., 0]))


def standardised(e: Evidence) -> Answer:
    """Largest own cosine, in standard deviations from that of the task's training images."""
    value = (e.own.amax(dim=2) / e.sigma - e.centre.unsqueeze(1)) / e.spread.unsqueeze(1)
    return answered_by(e.own, lowest(-value))


def density(e: Evidence) -> Answer:
    """Largest density of the task under shared-covariance Gaussians; its module answers."""
    return answered_by(e.own, lowest(-e.per_task(e.slda)))


def _alone(scores: Tensor, e: Evidence) -> Answer:
    return scores, e.task_of[scores.argmax(dim=1)]


def _product(router: Tensor, e: Evidence) -> Answer:
    """A router's scores times each module's posterior over its own classes."""
    return _alone((router + own_log_posterior(e.logits, e.task_of)) / 10, e)


def _prior(router: Tensor, e: Evidence, k: int | None = None) -> Answer:
    """The router tells the task's probability, the module alone the class within the task."""
    prior = torch.log_softmax(e.per_task(router) / 10, dim=0)
    if k is None:
        return _alone(prior[e.task_of].T + own_log_posterior(e.logits, e.task_of), e)
    worst = prior.topk(min(k, len(prior)), dim=0).values[-1]
    mixed = (prior.masked_fill(prior < worst, -torch.inf)).unsqueeze(2)
    scores = (mixed + torch.log_softmax(e.logits, dim=2)).logsumexp(dim=0)
    return scores, prior.argmax(dim=0)


RULES: dict[str, Callable[[Evidence], Answer]] = {
    "entropy": entropy_all,
    "entropy, rows re-expressed": entropy_redrawn,
    "own entropy": entropy_own,
    "energy": energy,
    "max cosine": max_cosine,
    "margin": margin,
    "standardised cosine": standardised,
    "task density": density,
    "SLDA alone": lambda e: _alone(e.slda, e),
    "SLDA x modules": lambda e: _alone(e.slda + own_log_posterior(e.logits, e.task_of), e),
    "Gaussians alone": lambda e: _alone(e.gaussians / 10, e),
    "Gaussians x modules": lambda e: _product(e.gaussians, e),
    "ridge alone": lambda e: _alone(e.ridge, e),
    "Gaussians + ridge alone": lambda e: _alone((e.gaussians + e.ridge) / 10, e),
    "gaussian-ridge": lambda e: _product(e.gaussians + e.ridge, e),
    "Gaussians + ridge pick the task": lambda e: _prior(e.gaussians + e.ridge, e),
    "mixture of the best 3 modules": lambda e: _prior(e.gaussians + e.ridge, e, 3),
}
ROUTERS = ("SLDA alone", "Gaussians alone", "ridge alone", "Gaussians + ridge alone")
"""Rules in which the modules have no say: the same whatever their training."""
