"""The growing linear classifier of MOS, Finetune and the prompt methods."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LINEAR_INITS = ("torch", "normal", "zeros")


class LinearHead(nn.Module):
    """Linear classifier with bias whose rows grow task by task; all rows are one parameter.

    :param dim: width d of the input.
    :param init: new rows as ``nn.Linear`` makes them ("torch": weight and bias
        U(-1/sqrt d, 1/sqrt d)), N(0, 0.02) with bias 0 ("normal"), or all 0 ("zeros").

    Shapes: input [..., d], output [..., rows].
    """

    def __init__(self, dim: int, init: str = "torch") -> None:
        super().__init__()
        if init not in LINEAR_INITS:
            raise ValueError(f"LinearHead: init={init!r} is unknown; choose one of {LINEAR_INITS}")
        self.dim, self.init = dim, init
        self.weight = nn.Parameter(torch.empty(0, dim))
        self.bias = nn.Parameter(torch.empty(0))

    def __len__(self) -> int:
        return len(self.bias)

    @torch.no_grad()
    def grow(self, n: int, generator: torch.Generator | None = None) -> None:
        """Add ``n`` rows; the values of those that were there stay."""
        weight, bias = torch.zeros(n, self.dim), torch.zeros(n)
        bound = 1 / math.sqrt(self.dim)
        if self.init == "torch":
            weight.uniform_(-bound, bound, generator=generator)
            bias.uniform_(-bound, bound, generator=generator)
        elif self.init == "normal":
            weight.normal_(0, 0.02, generator=generator)
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), weight.to(self.weight)]))
        self.bias = nn.Parameter(torch.cat([self.bias.detach(), bias.to(self.bias)]))

    def forward(self, x: Tensor) -> Tensor:
        """Return x W^T + b for every row."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the settings for printing."""
        return f"dim={self.dim}, rows={len(self)}, init={self.init}"
