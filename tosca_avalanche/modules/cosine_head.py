"""The growing cosine classifier shared by TOSCA and its peers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEAD_INITS = ("uniform", "zeros", "prototype")


class CosineHead(nn.Module):
    """Cosine classifier, logits_c = sigma * cos(x, w_c), whose rows grow task by task.

    Earlier rows stay as they are (``old_rows="frozen"``) or go on learning with the
    newest ones (``"trainable"``, the authors' code, where they drift by about 1 % a
    task). Sigma is one learnable scalar carried from task to task.

    Source: TOSCA, authors' code; the same head serves APER, RanPAC and EASE.

    :param dim: width d of the input.
    :param scale_init: sigma at the start.
    :param old_rows: "frozen" or "trainable".

    Shapes: input [..., d], output [..., rows].
    """

    frozen_rows: Tensor

    def __init__(self, dim: int, scale_init: float = 1.0, old_rows: str = "frozen") -> None:
        super().__init__()
        if old_rows not in ("frozen", "trainable"):
            raise ValueError(
                f"CosineHead: old_rows={old_rows!r} is unknown; choose 'frozen' or 'trainable'"
            )
        self.dim, self.old_rows = dim, old_rows
        self.register_buffer("frozen_rows", torch.empty(0, dim))
        self.new_rows = nn.Parameter(torch.empty(0, dim))
        self.sigma = nn.Parameter(torch.tensor(float(scale_init)))

    @property
    def rows(self) -> Tensor:
        """All rows [R, d], oldest first."""
        return torch.cat([self.frozen_rows, self.new_rows])

    def __len__(self) -> int:
        return len(self.frozen_rows) + len(self.new_rows)

    @torch.no_grad()
    def grow(self, n: int, init: str = "uniform", generator: torch.Generator | None = None) -> None:
        """Add ``n`` trainable rows; rows that were there are frozen, or kept trainable.

        :param init: "uniform" U(-1/sqrt d, 1/sqrt d); "zeros" (authors' code) for all but
            the very first rows; "prototype" leaves uniform rows for the caller to set.
        """
        if init not in HEAD_INITS:
            raise ValueError(
                f"CosineHead: head_init={init!r} is unknown; choose one of {HEAD_INITS}"
            )
        device = self.sigma.device
        bound = 1 / math.sqrt(self.dim)
        fresh = torch.empty(n, self.dim).uniform_(-bound, bound, generator=generator).to(device)
        if init == "zeros" and len(self) > 0:
            fresh.zero_()
        if self.old_rows == "frozen":
            self.frozen_rows = self.rows.detach()
            self.new_rows = nn.Parameter(fresh)
        else:
            self.new_rows = nn.Parameter(torch.cat([self.new_rows.detach(), fresh]))

    @torch.no_grad()
    def set_last_rows(self, values: Tensor) -> None:
        """Replace the newest ``len(values)`` rows, as TOSCA does with a task's prototypes."""
        self.new_rows[-len(values) :] = values.to(self.new_rows)

    def forward(self, x: Tensor) -> Tensor:
        """Return sigma * cos(x, row) for every row."""
        return self.sigma * F.linear(F.normalize(x, dim=-1), F.normalize(self.rows, dim=-1))

    def extra_repr(self) -> str:
        """Return the settings for printing."""
        return f"dim={self.dim}, rows={len(self)}, old_rows={self.old_rows}"
