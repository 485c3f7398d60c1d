"""CODA-Prompt as a plain torch net: prompts as weighted sums of components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.prompt_net import PromptNet
from tosca_avalanche.modules.prompting import checked_prefix_vit, prefixed
from tosca_avalanche.seeding import generator


class CODAPromptNet(PromptNet):
    """CODA-Prompt (CVPR 2023).

    Each prompted block has components P_k [length, d], keys K_k and attentions A_k [d]. An
    image's weights are a_k = cos(q * A_k, K_k), signed, no softmax; its prompt is sum_k a_k
    P_k, the first half of whose rows extend the projected keys, the second the values.
    Components of earlier tasks go on contributing and are frozen.

    :param blocks: where prompts go.
    :param length: rows of a component, an even number.
    :param components: per task; the authors' is floor(100 / tasks).
    :param mu: weight of the orthogonality penalty; 0 in every released configuration.
    """

    old_P: Tensor
    old_K: Tensor
    old_A: Tensor

    def __init__(
        self,
        backbone: FrozenBackbone,
        *,
        blocks: Sequence[int] = (0, 1, 2, 3, 4),
        length: int = 8,
        components: int = 10,
        mu: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(backbone, head_init="torch", seed=seed)
        if length < 2 or length % 2 or components < 1:
            raise ValueError(
                f"CODAPromptNet: length={length} must be even and components={components} at "
                f"least 1"
            )
        self.vit = [checked_prefix_vit(backbone.module, list(blocks))]
        self.blocks, self.length, self.components, self.mu = [*blocks], length, components, mu
        n, d = len(self.blocks), backbone.embed_dim
        for name, width in (("P", length * d), ("K", d), ("A", d)):
            self.register_buffer(f"old_{name}", torch.zeros(n, 0, width))
            setattr(self, f"new_{name}", nn.Parameter(torch.zeros(n, 0, width)))

    def rows(self, name: str) -> Tensor:
        """Return all rows of "P" (flattened), "K" or "A" [blocks, components so far, width]."""
        return torch.cat([getattr(self, f"old_{name}"), getattr(self, f"new_{name}")], dim=1)

    @torch.no_grad()
    def grow(self, labels: list[int]) -> None:
        """Add head rows; freeze the components so far and add the task's own."""
        t = self.n_tasks
        super().grow(labels)
        draws = generator(self.seed, "components", t)
        for name in ("P", "K", "A"):
            old = self.rows(name).detach()
            new = torch.stack([orthonormal_rows(o, self.components, draws) for o in old.cpu()])
            setattr(self, f"old_{name}", old)
            setattr(self, f"new_{name}", nn.Parameter(new.to(old)))

    def rest(self) -> dict[str, Any]:
        """Return what was learned beside tensors, and how many components a task adds."""
        return {**super().rest(), "components": self.components}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.components = rest["components"]
        super().restore(tensors, rest)

    def prompted(self, x: Tensor, query: Tensor) -> Tensor:
        """Return the final [CLS] [B, d] of images under their weighted prompts."""
        prompts = component_prompts(query, self.rows("P"), self.rows("K"), self.rows("A"))
        halves = prompts.reshape(len(self.blocks), len(x), 2, self.length // 2, -1)
        prefixes = {b: (halves[i, :, 0], halves[i, :, 1]) for i, b in enumerate(self.blocks)}
        with prefixed(self.vit[0], prefixes):
            z: Tensor = self.vit[0](x)
        return z

    def penalty(self) -> Tensor:
        """Return mu * sum over blocks of mean((M M^T - I)^2) for M = K, A and flattened P."""
        if not self.mu:
            return super().penalty()
        total = super().penalty()
        for name in ("K", "A", "P"):
            m = self.rows(name)
            eye = torch.eye(m.shape[1], device=m.device)
            total = total + ((m @ m.mT - eye) ** 2).mean(dim=(1, 2)).sum()
        return self.mu * total


def component_prompts(query: Tensor, P: Tensor, K: Tensor, A: Tensor) -> Tensor:
    """Return sum_k cos(q * A_k, K_k) P_k for each block and query [blocks, B, width of P].

    Source: CODA-Prompt, eq. 3 to 5.
    """
    # cos = sum_d q A K / (|q A| |K|), without an array of B x components x d
    top = torch.einsum("bd,lkd->lbk", query, A * K)
    norms = torch.einsum("bd,lkd->lbk", query**2, A**2).clamp_min(1e-24).sqrt()
    weights = top / (norms * K.norm(dim=-1).clamp_min(1e-12).unsqueeze(1))
    return torch.bmm(weights, P)


def orthonormal_rows(old: Tensor, n: int, draws: torch.Generator) -> Tensor:
    """Return n rows [n, width], drawn N(0, 1), made orthogonal to ``old`` and to each other.

    One pass of Gram and Schmidt, then norm 1, as the authors do. Where the rows fill the
    space already, none is orthogonal to all: such a row stays as drawn, with norm 1.

    :param old: [m, width], of any norm.
    """
    rows = list(F.normalize(old, dim=1))
    for _ in range(n):
        drawn = torch.randn(old.shape[1], generator=draws)
        row = drawn.clone()
        for other in rows:
            row -= (drawn @ other) * other
        if row.norm() < 1e-3 * drawn.norm():
            row = drawn
        rows.append(F.normalize(row, dim=0))
    return torch.stack(rows[len(old) :])
