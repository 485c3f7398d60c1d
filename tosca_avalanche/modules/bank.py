"""The bank of LuCA modules: one per task, all frozen but the newest."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tosca_avalanche.modules.luca import LuCA


class ModuleBank(nn.Module):
    """The modules of all tasks; calling it gives every module's view of every token.

    Shapes: input [B, d], output [T, B, d] with T the number of modules.
    """

    def __init__(self) -> None:
        super().__init__()
        self.luca = nn.ModuleList()

    def __len__(self) -> int:
        return len(self.luca)

    @property
    def current(self) -> LuCA:
        """The newest module."""
        if not len(self.luca):
            raise RuntimeError("the bank is empty: add a module before asking for the current one")
        return self.luca[-1]  # type: ignore[return-value]

    def add(self, module: LuCA) -> None:
        """Append a module; all earlier ones are frozen."""
        self.freeze()
        self.luca.append(module)

    def freeze(self) -> None:
        """Freeze every module there is."""
        self.luca.requires_grad_(False)

    def forward(self, z: Tensor) -> Tensor:
        """Return L_t(z) for every module t: [T, B, d]."""
        if not len(self.luca):
            return z.new_empty(0, *z.shape)
        return torch.stack([module(z) for module in self.luca])
