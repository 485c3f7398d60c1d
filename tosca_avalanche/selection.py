"""Which module answers: pure functions from logits ``[T, B, C]`` to a module index ``[B]``.

Every module t gives logits over the same C seen classes for each of B images.

The paper's words (TOSCA, TMLR 2026, inference) choose per INPUT: the module whose
softmax has the lowest entropy. The authors' code chooses per BATCH and reads the test
set class by class, so that nearly every batch holds a single task: the images of a
batch vote and the task leaks. :func:`select_entropy` is the former and the default;
:func:`select_entropy_batch` reproduces the latter and must be labelled as such.
"""

from __future__ import annotations

import torch
from torch import Tensor

SELECTIONS = ("entropy", "entropy-batch", "oracle")


def entropy(logits: Tensor) -> Tensor:
    """Return the Shannon entropy (nats) of softmax(logits) over the last dimension.

    H = - sum_c p_c log p_c, from log_softmax so that large logits stay finite.

    >>> entropy(torch.zeros(2)).exp()  # two equal classes: H = log 2
    tensor(2.)
    """
    log_p = torch.log_softmax(logits, dim=-1)
    return -(log_p.exp() * log_p).sum(dim=-1)


def select_entropy(logits: Tensor) -> Tensor:
    """Return for each image the module of lowest entropy, ties to the lowest index.

    :param logits: [T, B, C].
    :return: module index [B], int64. An image's choice depends on that image alone.
    """
    return lowest(entropy(_checked(logits)))


def select_entropy_batch(logits: Tensor) -> Tensor:
    """Return one module for the whole batch: the lowest entropy averaged over its images.

    This is the protocol of the authors' code, which leaks the task when a batch holds
    images of one task. Numbers made with it are comparable only with each other.

    :param logits: [T, B, C].
    :return: module index [B], the same value B times.
    """
    return batch_vote(entropy(_checked(logits)))


def batch_vote(entropies: Tensor) -> Tensor:
    """Return the module of lowest mean entropy for every image, [B], from entropies [T, B]."""
    return lowest(entropies.mean(dim=1, keepdim=True)).expand(entropies.shape[1])


def select_oracle(logits: Tensor, task_ids: Tensor) -> Tensor:
    """Return the module of the image's own task: a ceiling that knows the answer.

    :param logits: [T, B, C].
    :param task_ids: [B], true task of each image; a task not learned yet (>= T) or
        unknown (< 0) falls back to the entropy rule.
    """
    task_ids = task_ids.to(logits.device)
    known = (task_ids >= 0) & (task_ids < logits.shape[0])
    return torch.where(known, task_ids, select_entropy(logits))


def lowest(values: Tensor) -> Tensor:
    """Return the index of the minimum over dim 0 of [T, B], the lowest on ties.

    ``torch.argmin`` promises nothing about ties.
    """
    best = values.min(dim=0).values
    index = torch.arange(values.shape[0], device=values.device).unsqueeze(1)
    return (
        torch.where(values == best, index, values.shape[0])
        .min(dim=0)
        .values.clamp(max=values.shape[0] - 1)
    )


def _checked(logits: Tensor) -> Tensor:
    if logits.dim() != 3 or 0 in (logits.shape[0], logits.shape[2]):
        raise ValueError(
            f"logits must be [modules, images, classes] with at least one module and one class, "
            f"got shape {tuple(logits.shape)}"
        )
    return logits
