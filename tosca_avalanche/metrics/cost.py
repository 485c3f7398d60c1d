"""How many numbers a module holds and trains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def count_parameters(module: nn.Module) -> int:
    """Return the number of values in all parameters AND buffers of ``module``, a Python int.

    Prototypes, covariances and running means are learned values that live in buffers, so a
    count without them would flatter the methods that use them. Memory shared by several
    parameters, buffers or views (tied weights, a transpose) counts once.

    >>> count_parameters(nn.BatchNorm1d(3))  # weight 3, bias 3, mean 3, variance 3, batches 1
    13
    """
    return _distinct_values([*module.parameters(), *module.buffers()])


def count_trainable(module: nn.Module) -> int:
    """Return the number of values in the parameters that require a gradient, a Python int.

    >>> layer = nn.Linear(3, 2)
    >>> _ = layer.bias.requires_grad_(False)
    >>> count_trainable(layer)
    6
    """
    return _distinct_values(p for p in module.parameters() if p.requires_grad)


def _distinct_values(tensors: Iterable[Tensor]) -> int:
    by_storage: dict[tuple[object, ...], list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        if tensor.numel() == 0:
            continue
        address = tensor.untyped_storage().data_ptr()
        # tensors on the meta device have no memory and would all share address 0
        key = (tensor.device, tensor.element_size(), address) if address else (id(tensor),)
        by_storage[key].append(tensor)
    return sum(_covered(group) for group in by_storage.values())


def _covered(tensors: list[Tensor]) -> int:
    """Count the values of one storage that at least one of its tensors shows."""
    first = tensors[0]
    if len(tensors) == 1 and first.is_contiguous():
        return first.numel()
    if not first.untyped_storage().data_ptr():
        return first.numel()
    seen = torch.zeros(first.untyped_storage().nbytes() // first.element_size(), dtype=torch.bool)
    for tensor in tensors:
        seen.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)
    return int(seen.sum())
