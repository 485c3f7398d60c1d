"""DualPrompt as a plain torch net: general prompts, and one expert prompt per task."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.prompt_net import PromptNet, match
from tosca_avalanche.modules.prompting import checked_prefix_vit, prefixed
from tosca_avalanche.seeding import generator


class DualPromptNet(PromptNet):
    """DualPrompt (ECCV 2022).

    A prompt is a pair of ``length`` key and ``length`` value vectors per block, in front of
    the projected keys and values. General prompts learn in every task; a task's expert
    prompt starts as a copy of the one before, its key anew. Training uses the task's own
    prompt; at test each image takes the prompt of the nearest key.

    :param g_blocks, e_blocks: blocks of the general and of the expert prompts.
    :param pool: "grow", one expert prompt per task; or a number, LAMDA-PILOT's fixed pool:
        tasks beyond it train whatever prompt matches, and at test prompts that no task has
        trained yet can be chosen.
    :param pull: weight of the term that draws the task's key to the queries.
    :param batchwise: see :func:`match`.

    LAMDA-PILOT mixes keys and values by a reshape that depends on the position in the
    batch; that is not reproduced.
    """

    def __init__(
        self,
        backbone: FrozenBackbone,
        *,
        g_blocks: Sequence[int] = (0, 1),
        e_blocks: Sequence[int] = (2, 3, 4),
        length: int = 5,
        pool: int | str = "grow",
        pull: float = 0.1,
        batchwise: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(backbone, head_init="normal", seed=seed)
        both = sorted({*g_blocks} & {*e_blocks})
        if both:
            raise ValueError(f"DualPromptNet: block {both[0]} has general and expert prompts")
        if pool != "grow" and (not isinstance(pool, int) or pool < 1):
            raise ValueError(f"DualPromptNet: pool={pool!r}; choose 'grow' or a number from 1")
        self.vit = [checked_prefix_vit(backbone.module, [*g_blocks, *e_blocks])]
        self.g_blocks, self.e_blocks, self.length = list(g_blocks), list(e_blocks), length
        self.pool, self.pull, self.batchwise = pool, pull, batchwise
        self.general = nn.Parameter(self._drawn(len(self.g_blocks), "general"))
        self.experts, self.keys = nn.ParameterList(), nn.ParameterList()
        for i in range(pool if isinstance(pool, int) else 0):
            self._add(i)

    def _drawn(self, blocks: int, *name: int | str) -> Tensor:
        d = self.backbone.embed_dim
        values = torch.empty(blocks, 2, self.length, d)
        return values.uniform_(-1, 1, generator=generator(self.seed, *name))

    def _add(self, i: int) -> None:
        expert = self._drawn(len(self.e_blocks), "expert", i)
        key = torch.empty(self.backbone.embed_dim)
        key.uniform_(-1, 1, generator=generator(self.seed, "key", i))
        self.experts.append(nn.Parameter(expert.to(self.device)))
        self.keys.append(nn.Parameter(key.to(self.device)))

    @property
    def pool_size(self) -> int:
        """Number of expert prompts."""
        return len(self.keys)

    @torch.no_grad()
    def grow(self, labels: list[int]) -> None:
        """Add head rows and, in a growing pool, a prompt; only the task's own one learns."""
        t = self.n_tasks
        super().grow(labels)
        if self.pool == "grow":
            self._add(t)
        if 0 < t < len(self.experts):
            self.experts[t].copy_(self.experts[t - 1])
        for i, (expert, key) in enumerate(zip(self.experts, self.keys, strict=True)):
            learns = i == t or t >= len(self.experts)
            expert.requires_grad_(learns)
            key.requires_grad_(learns)

    def prompted(self, x: Tensor, query: Tensor) -> Tensor:
        """Return the final [CLS] [B, d] of images under general and expert prompts."""
        chosen, cosines = match(query, torch.stack([*self.keys]), 1, self.batchwise)
        t = self.n_tasks - 1
        if self.training and t < len(self.keys):
            chosen = torch.full_like(chosen, t)
        self._pulled, self.last_prompts = cosines.gather(1, chosen), chosen
        experts = torch.stack([*self.experts])[chosen[:, 0]]  # [B, blocks, 2, length, d]
        prefixes = {}
        for i, block in enumerate(self.g_blocks):
            keys, values = self.general[i].unsqueeze(1).expand(-1, len(x), -1, -1)
            prefixes[block] = (keys, values)
        for i, block in enumerate(self.e_blocks):
            prefixes[block] = (experts[:, i, 0], experts[:, i, 1])
        with prefixed(self.vit[0], prefixes):
            z: Tensor = self.vit[0](x)
        return z

    def penalty(self) -> Tensor:
        """Return -pull * mean cos(q, key of the prompt in use)."""
        assert self._pulled is not None
        return -self.pull * self._pulled.mean()
