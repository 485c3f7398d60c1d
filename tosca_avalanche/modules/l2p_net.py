"""L2P as a plain torch net: a pool of prompt tokens, chosen by keys."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.adapters import checked_vit
from tosca_avalanche.modules.prompt_net import PromptNet, match
from tosca_avalanche.modules.prompting import with_tokens
from tosca_avalanche.seeding import generator

LAYOUTS = ("pilot", "google")


class L2PNet(PromptNet):
    """Learning to prompt (CVPR 2022).

    The ``top_k`` prompts whose keys are nearest to an image's query go in as tokens, best
    first; the feature is the mean of their outputs. All tasks share the pool. The keys
    learn through the pull term alone.

    :param pool: number of prompts.
    :param length: tokens of a prompt.
    :param top_k: prompts of an image.
    :param pull: weight of the term that draws chosen keys to the queries.
    :param layout: see :func:`with_tokens`.
    :param low, high: prompts and keys start U(low, high).
    :param batchwise: see :func:`match`.
    """

    def __init__(
        self,
        backbone: FrozenBackbone,
        *,
        pool: int = 10,
        length: int = 5,
        top_k: int = 5,
        pull: float = 0.1,
        layout: str = "pilot",
        low: float = -1.0,
        high: float = 1.0,
        head_init: str = "normal",
        batchwise: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(backbone, head_init=head_init, seed=seed)
        self.vit = [checked_vit(backbone.module)]  # in a list: the weights are the backbone's
        if layout not in LAYOUTS:
            raise ValueError(f"L2PNet: layout={layout!r} is unknown; choose one of {LAYOUTS}")
        if not 1 <= top_k <= pool or length < 1:
            raise ValueError(
                f"L2PNet: top_k={top_k} prompts of length={length} from a pool of pool={pool}: "
                f"top_k lies between 1 and the pool's size, length is at least 1"
            )
        self.top_k, self.pull, self.layout, self.batchwise = top_k, pull, layout, batchwise
        d, draws = backbone.embed_dim, generator(seed, "prompts")
        values = torch.empty(pool, length, d).uniform_(low, high, generator=draws)
        keys = torch.empty(pool, d).uniform_(low, high, generator=draws)
        self.prompts, self.keys = nn.Parameter(values), nn.Parameter(keys)

    @property
    def pool_size(self) -> int:
        """Number of prompts in the pool."""
        return len(self.keys)

    def prompted(self, x: Tensor, query: Tensor) -> Tensor:
        """Return the mean output [B, d] of each image's prompt tokens."""
        chosen, cosines = match(query, self.keys, self.top_k, self.batchwise)
        self._pulled, self.last_prompts = cosines.gather(1, chosen), chosen
        tokens = self.prompts[chosen].flatten(1, 2)
        return with_tokens(self.vit[0], x, tokens, self.layout).mean(dim=1)

    def penalty(self) -> Tensor:
        """Return -pull / B sum_b sum_chosen cos(q_b, key)."""
        assert self._pulled is not None
        return -self.pull * self._pulled.sum(dim=1).mean()
