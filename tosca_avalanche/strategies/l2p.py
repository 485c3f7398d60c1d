"""L2P: learning to prompt (CVPR 2022)."""

from __future__ import annotations

from typing import Any

from torch import nn

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.modules import L2PNet
from tosca_avalanche.strategies.prompting import PromptStrategy
from tosca_avalanche.strategies.registry import register

PRESETS: dict[str, dict[str, Any]] = {
    "pilot": {
        "length": 5, "top_k": 5, "pull": 0.1, "low": -1.0, "high": 1.0, "head_init": "normal",
        "clip": None,
    },
    "google": {
        "length": 10, "top_k": 4, "pull": 1.0, "low": 0.0, "high": 0.01, "head_init": "zeros",
        "clip": 1.0,
    },
}  # fmt: skip


@register("l2p")
class L2PStrategy(PromptStrategy):
    """A pool of prompt tokens for all tasks; each image takes those of the nearest keys.

    The defaults are LAMDA-PILOT's settings for CIFAR (batch 16, 5 epochs; ImageNet-R:
    ``base_lr=0.015``, batch 32, 10 epochs), but the choice is made per image: PILOT's
    majority vote over the batch, which leaks the task, is ``batchwise=True``.

    :param model: a backbone that is a timm VisionTransformer.
    :param preset: "pilot", or "google" for the first authors' code: its layout, length 10,
        top 4, pull 1, gradients clipped at 1, prompts and keys U(0, 0.01), a zero head.
    :param length, top_k, pull, clip: None takes the preset's.
    :param base_lr: the learning rate is base_lr * batch / 256: 1.875e-3 at batch 16.
    :param lr: the learning rate itself, instead.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        preset: str = "pilot",
        pool: int = 10,
        length: int | None = None,
        top_k: int | None = None,
        pull: float | None = None,
        clip: float | None = None,
        batchwise: bool = False,
        base_lr: float = 0.03,
        lr: float | None = None,
        train_epochs: int = 5,
        train_mb_size: int = 16,
        eval_mb_size: int | None = 16,
        seed: int = 0,
        **common: Any,
    ) -> None:
        if preset not in PRESETS:
            raise ValueError(f"L2P: preset={preset!r} is unknown; choose one of {[*PRESETS]}")
        given = {"length": length, "top_k": top_k, "pull": pull, "clip": clip}
        settings = PRESETS[preset] | {k: v for k, v in given.items() if v is not None}
        clip = settings.pop("clip")
        net = L2PNet(
            load_backbone(model),
            pool=pool,
            layout=preset,
            batchwise=batchwise,
            seed=seed,
            **settings,
        )
        super().__init__(
            model=net,
            lr=base_lr * train_mb_size / 256 if lr is None else lr,
            clip=clip,
            train_epochs=train_epochs,
            train_mb_size=train_mb_size,
            eval_mb_size=eval_mb_size,
            seed=seed,
            **common,
        )
