"""Which tasks are in a file already: their modules are frozen, so nobody has to look again."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn


@dataclass
class _Known:
    tensors: dict[str, Tensor]
    versions: list[int]
    digest: str


class Written:
    """Remembers the SHA-256 of the file that holds a module's task, while that stays as it is.

    What is changed where it lies is seen by torch's count of such changes, what was put in
    its place by its values. A change through ``.data`` escapes that count, as it escapes
    autograd.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[nn.Module, _Known] = WeakKeyDictionary()

    def remember(self, module: nn.Module, tensors: dict[str, Tensor], digest: str) -> None:
        """Remember the file of the task that a module belongs to."""
        if any(tensor.is_inference() for tensor in tensors.values()):
            self._known.pop(module, None)  # torch counts no changes of these
            return
        versions = [tensor._version for tensor in tensors.values()]
        self._known[module] = _Known(dict(tensors), versions, digest)

    def digest(self, module: nn.Module, tensors: dict[str, Tensor]) -> str | None:
        """Return the SHA-256 of the file that holds these tensors; None where none is known."""
        known = self._known.get(module)
        if (
            known is None
            or known.tensors.keys() != tensors.keys()
            or known.versions != [tensor._version for tensor in known.tensors.values()]
            or not all(_same(known.tensors[key], tensors[key]) for key in tensors)
        ):
            return None
        return known.digest


def _same(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.device != b.device or a.shape != b.shape:
        return False
    return (a.data_ptr() == b.data_ptr() and a.stride() == b.stride()) or torch.equal(a, b)
