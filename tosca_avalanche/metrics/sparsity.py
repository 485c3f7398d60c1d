"""The share of parameters that are zero, or close to it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from tosca_avalanche.metrics.score import Score, share_score


def sparsity(parameters: Iterable[torch.Tensor], threshold: float = 0.0) -> Score:
    """Return the share of entries with theta == 0, or with |theta| < threshold; n = the entries.

    Plain sub-gradient SGD on an L1 term gives next to no exact zeros, hence the threshold. The
    comparison is made in float32 at least: a threshold rounded to bfloat16 moves by 0.4 %.

    >>> sparsity([torch.tensor([0.0, 0.0005, 1.0, -2.0])])
    Score(value=0.25, n=4)
    >>> sparsity([torch.tensor([0.0, 0.0005, 1.0, -2.0])], threshold=1e-3)
    Score(value=0.5, n=4)

    :param parameters: tensors of any shape and device, such as ``module.parameters()``.
    :param threshold: 0 for exact zeros, else the bound that an absolute value must be under.
    :raises ValueError: a threshold below 0 or not finite, or a parameter that holds NaN.
    """
    if not math.isfinite(threshold) or threshold < 0:
        raise ValueError(f"threshold = {threshold!r}: pass 0 for exact zeros, or a number above 0")
    small = entries = 0
    for index, parameter in enumerate(parameters):
        size = parameter.detach().abs()
        size = size.to(torch.promote_types(size.dtype, torch.float32))
        if size.isnan().any():
            raise ValueError(
                f"parameter {index} of shape {tuple(size.shape)} holds NaN: its sparsity has no "
                "meaning; look for a training run that diverged"
            )
        hits = size == 0 if threshold == 0 else size < threshold
        small += int(hits.sum())
        entries += size.numel()
    return share_score(small, entries)
