"""CODA-Prompt: prompts as weighted sums of components (CVPR 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks.experience import whole_stream
from tosca_avalanche.modules import CODAPromptNet
from tosca_avalanche.strategies.prompting import PromptStrategy
from tosca_avalanche.strategies.registry import register

COMPONENTS = 100


@register("codaprompt")
class CODAPromptStrategy(PromptStrategy):
    """Components with keys and attentions; an image's prompt is their weighted sum.

    The defaults are the authors' settings for CIFAR (Adam 1e-3, batch 128, 20 epochs;
    ImageNet-R: 50 epochs). Their code drops the last incomplete batch of an epoch; here
    every image is trained on, and so a task smaller than a batch learns too.

    :param model: a backbone that is a timm VisionTransformer.
    :param components: per task; None is the authors' floor(100 / tasks of the stream), at
        least 1. Tasks beyond the stream go on adding as many.
    :param mu: weight of the orthogonality penalty.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        blocks: Sequence[int] = (0, 1, 2, 3, 4),
        length: int = 8,
        components: int | None = None,
        mu: float = 0.0,
        train_epochs: int = 20,
        train_mb_size: int = 128,
        seed: int = 0,
        **common: Any,
    ) -> None:
        self.components = components
        net = CODAPromptNet(
            load_backbone(model),
            blocks=blocks,
            length=length,
            components=1 if components is None else components,
            mu=mu,
            seed=seed,
        )
        super().__init__(
            model=net,
            train_epochs=train_epochs,
            train_mb_size=train_mb_size,
            seed=seed,
            **common,
        )

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """Share the components among the stream's tasks, before its first one."""
        if self.components is None and not self.model.n_tasks:
            self.model.components = max(1, COMPONENTS // len(whole_stream(self.experience)))
        super().check_model_and_optimizer(**kwargs)

    def default_scheduler(self, optimizer: Optimizer, epochs: int) -> LRScheduler:
        """Return the authors' rate: lr * cos(99 pi max(0, e - 1) / (200 (E - 1))) in epoch e."""
        last = max(1, epochs - 1)
        return LambdaLR(optimizer, lambda e: math.cos(99 * math.pi * max(0, e - 1) / (200 * last)))
