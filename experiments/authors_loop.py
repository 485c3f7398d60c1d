"""The loop of TOSCA's authors, from its description: the yardstick of the benchmark.

Training passes a fresh random view of every image through the backbone in every epoch.
Evaluation passes every batch through the backbone once for EACH module, and one module
answers for the whole batch. Nothing is cached.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tosca_avalanche.modules.incremental import pad_outputs
from tosca_avalanche.selection import select_entropy_batch
from tosca_avalanche.strategies import TOSCAStrategy


class AuthorsLoop(TOSCAStrategy):
    """TOSCA with one backbone pass per image and epoch, and per image and module."""

    def __init__(self, *, model: nn.Module, **settings: Any) -> None:
        super().__init__(
            model=model, cache=False, train_views="fresh", selection="entropy-batch", **settings
        )

    def forward(self) -> Tensor:
        """Pass the batch once in training, once per module in evaluation."""
        if self.is_training or not self.model.n_tasks:
            return super().forward()
        net = self.model
        logits = torch.stack(
            [net.merge_rows(net.head(luca(net.backbone(self.mb_x)))) for luca in net.bank.luca]
        )
        net.last_modules = select_entropy_batch(logits)
        outputs = net.to_outputs(logits[int(net.last_modules[0])])
        return pad_outputs(outputs, int(self.mb_y.max()) + 1)
