"""DualPrompt: general and expert prompts (ECCV 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.modules import DualPromptNet
from tosca_avalanche.strategies.prompting import PromptStrategy
from tosca_avalanche.strategies.registry import register


@register("dualprompt")
class DualPromptStrategy(PromptStrategy):
    """Prefix keys and values: general ones for all tasks, one expert prompt per task.

    The defaults are LAMDA-PILOT's settings for CIFAR (Adam 1e-3, batch 24, 5 epochs;
    ImageNet-R: 10 epochs), but the pool grows with the tasks (``pool=10`` is PILOT's) and
    the expert is chosen per image (``batchwise=True`` is its majority vote, which leaks the
    task). See :class:`~tosca_avalanche.modules.DualPromptNet`.

    :param model: a backbone that is a timm VisionTransformer.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        g_blocks: Sequence[int] = (0, 1),
        e_blocks: Sequence[int] = (2, 3, 4),
        length: int = 5,
        pool: int | str = "grow",
        pull: float = 0.1,
        batchwise: bool = False,
        train_epochs: int = 5,
        train_mb_size: int = 24,
        eval_mb_size: int | None = 24,
        seed: int = 0,
        **common: Any,
    ) -> None:
        net = DualPromptNet(
            load_backbone(model),
            g_blocks=g_blocks,
            e_blocks=e_blocks,
            length=length,
            pool=pool,
            pull=pull,
            batchwise=batchwise,
            seed=seed,
        )
        super().__init__(
            model=net,
            train_epochs=train_epochs,
            train_mb_size=train_mb_size,
            eval_mb_size=eval_mb_size,
            seed=seed,
            **common,
        )
