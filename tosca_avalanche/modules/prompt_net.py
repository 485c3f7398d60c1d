"""What the prompt methods share: a query, a prompted pass, and a growing linear head."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.incremental import IncrementalNet
from tosca_avalanche.modules.linear_head import LinearHead
from tosca_avalanche.seeding import generator


class PromptNet(IncrementalNet):
    """Prompts for a frozen transformer, chosen or weighted by a query, and a linear head.

    The query of an image is its [CLS] under the plain transformer: a frozen feature, once
    per image. In training mode the outputs are those of the newest task's classes alone;
    in evaluation mode all seen classes compete.

    Subclasses write ``prompted`` and, where there is one, ``penalty``.

    :param head_init: see :class:`LinearHead`.
    """

    def __init__(self, backbone: FrozenBackbone, *, head_init: str, seed: int = 0) -> None:
        super().__init__(backbone)
        self.head_init, self.seed = head_init, seed
        self.images_prompted = 0
        self._pulled: Tensor | None = None
        self.last_prompts: Tensor | None = None
        """Prompts chosen for each image of the last evaluated batch [B, k]."""

    @property
    def pool_size(self) -> int:
        """Number of prompts that an image can choose from."""
        return 0

    @property
    def passes_per_image(self) -> int:
        """One pass for the query, one with prompts."""
        return 2

    @property
    def images_passed(self) -> int:
        """Images passed for queries and, prompted, for answers."""
        return super().images_passed + self.images_prompted

    def build(self, dim: int) -> None:
        """Make the head."""
        self.head = LinearHead(dim, self.head_init)

    def grow(self, labels: list[int]) -> None:
        """Add head rows."""
        self.head.grow(len(labels), generator(self.seed, "head", self.n_tasks))

    def prompted(self, x: Tensor, query: Tensor) -> Tensor:
        """Return the feature [B, d] of images under their prompts."""
        raise NotImplementedError

    def penalty(self) -> Tensor:
        """Return what the last training batch adds to the loss."""
        return torch.zeros((), device=self.device)

    def forward(
        self, x: Tensor, task_ids: Tensor | None = None, query: Tensor | None = None
    ) -> Tensor:
        """Return outputs [B, width] for images x.

        :param query: their queries [B, d], where they are known.
        """
        if query is None:
            query = self.backbone(x)
        if not self.n_tasks:
            return self.to_outputs(query)
        if self.training:
            self.images_trained += len(x)
            logits = self.head(self.prompted(x, query))
            return self.task_to_outputs(logits[:, -len(self.task_classes[-1]) :])
        self.images_prompted += len(x)
        return self.to_outputs(self.merge_rows(self.head(self.prompted(x, query))))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the last batch behind: torch can't copy a tensor of a graph."""
        return {**self.__dict__, "_pulled": None}


def match(query: Tensor, keys: Tensor, k: int, batchwise: bool = False) -> tuple[Tensor, Tensor]:
    """Return the k keys of highest cosine for each query [B, k], best first, and all cosines.

    Ties go to the lowest index.

    :param query: [B, d].
    :param keys: [K, d].
    :param batchwise: the toolboxes' way: the k keys most often among a sample's best k serve
        the whole batch, most frequent first. Leaks the task where a batch holds one.

    >>> keys = torch.eye(3)
    >>> q = torch.tensor([[3.0, 2.0, 1.0], [0.0, 1.0, 2.0], [1.0, 3.0, 2.0]])
    >>> match(q, keys, 2)[0]
    tensor([[0, 1],
            [2, 1],
            [1, 2]])
    >>> match(q, keys, 2, batchwise=True)[0]
    tensor([[1, 2],
            [1, 2],
            [1, 2]])
    """
    cosines = F.linear(F.normalize(query, dim=-1), F.normalize(keys, dim=-1))
    chosen = cosines.argsort(dim=1, descending=True, stable=True)[:, :k]
    if batchwise:
        votes = torch.bincount(chosen.flatten(), minlength=len(keys))
        elected = votes.argsort(descending=True, stable=True)[:k]
        chosen = elected.expand(len(query), -1)
    return chosen, cosines
