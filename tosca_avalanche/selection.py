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

SELECTIONS = ("entropy", "entropy-batch", "oracle", "gaussian-ridge")
# divides the routed scores; it changes no answer, only how sure they are. Chosen on held-out
# training images of four streams (docs/selection.md)
ROUTED_TEMPERATURE = 10.0


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


def own_log_posterior(row_logits: Tensor, task_of_row: Tensor) -> Tensor:
    """Return for each row the log posterior among its own task's rows, under its own module.

    :param row_logits: [T, B, R], module t's logits of every row.
    :param task_of_row: [R], the task of each row.
    :return: [B, R]: log softmax over the rows of task t of module t's logits, for row r of t.
    """
    tasks, images, _ = row_logits.shape
    foreign = torch.arange(tasks, device=task_of_row.device).unsqueeze(1) != task_of_row
    total = row_logits.masked_fill(foreign.unsqueeze(1), -torch.inf).logsumexp(dim=2)
    own = row_logits.gather(0, task_of_row.expand(1, images, -1)).squeeze(0)
    return own - total[task_of_row].T


def route(router: Tensor, own_rows: Tensor, class_of_row: Tensor) -> tuple[Tensor, Tensor]:
    """Return class scores and the row that answers, from a router and the modules' own answers.

    A product of experts: the router says which classes, and so which tasks, fit the raw
    feature, and each module which of its own classes it is::

        score_c = (router_c + max over rows r of class c of own_r) / 10

    The softmax of the scores is the posterior. An image's answer depends on it alone.

    :param router: [B, C], log-likelihoods up to a constant of each image.
    :param own_rows: [B, R], see :func:`own_log_posterior`.
    :param class_of_row: [R], position of each row's class among the C.
    :return: scores [B, C], and the best row [B] of the best class, ties to the lowest.
    """
    index = class_of_row.expand(own_rows.shape)
    own = own_rows.new_full(router.shape, -torch.inf).scatter_reduce(1, index, own_rows, "amax")
    scores = (router + own) / ROUTED_TEMPERATURE
    winner = lowest(-scores.T)
    rows = own_rows.masked_fill(index != winner.unsqueeze(1), -torch.inf)
    return scores, lowest(-rows.T)


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
