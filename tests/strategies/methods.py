"""One row per strategy: what the contract suite runs. A new method adds its row here."""

from __future__ import annotations

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from tests.conftest import TinyNet
from tosca_avalanche.backbones import FrozenBackbone, load_backbone
from tosca_avalanche.seeding import seeded_globals
from tosca_avalanche.strategies import (
    APERStrategy,
    CODAPromptStrategy,
    DualPromptStrategy,
    EASEStrategy,
    FinetuneStrategy,
    JointFinetuneStrategy,
    JointStrategy,
    L2PStrategy,
    MOSStrategy,
    RanPACStrategy,
    RoutedTOSCAStrategy,
    SimpleCILStrategy,
    SLDAStrategy,
    TOSCAStrategy,
)

FIRST_TASK = {"first_epochs": 2, "train_mb_size": 8, "width": 4}
EVERY_TASK = {"train_epochs": 2, "train_mb_size": 8}
METHODS = {
    "aper": (APERStrategy, FIRST_TASK),
    "codaprompt": (
        CODAPromptStrategy,
        {**EVERY_TASK, "blocks": [0, 1], "length": 2, "components": 3, "lr": 0.02},
    ),
    "dualprompt": (
        DualPromptStrategy,
        {**EVERY_TASK, "g_blocks": [0], "e_blocks": [1], "length": 2, "lr": 0.02},
    ),
    "ease": (EASEStrategy, {**EVERY_TASK, "width": 4}),
    "finetune": (FinetuneStrategy, {**EVERY_TASK, "lr": 0.05}),
    "joint": (JointStrategy, {"train_epochs": 3, "train_mb_size": 8, "lr": 0.1}),
    "joint_finetune": (JointFinetuneStrategy, {**EVERY_TASK, "lr": 0.05}),
    "l2p": (L2PStrategy, {**EVERY_TASK, "pool": 6, "length": 2, "top_k": 2, "base_lr": 0.6}),
    "mos": (MOSStrategy, {**EVERY_TASK, "width": 4, "align_epochs": 2}),
    "ranpac": (RanPACStrategy, {**FIRST_TASK, "projection": 200}),
    "simplecil": (SimpleCILStrategy, {}),
    "slda": (SLDAStrategy, {}),
    "tosca": (TOSCAStrategy, {"train_epochs": 3, "train_mb_size": 8, "lr": 0.1}),
    "tosca_routed": (
        RoutedTOSCAStrategy,
        {"train_epochs": 3, "train_mb_size": 8, "projection": 100},
    ),
}
PROMPTS = ("codaprompt", "dualprompt", "l2p")
NEED_A_VIT = (*PROMPTS, "aper", "ease", "mos", "ranpac")
JOINT = ("joint", "joint_finetune")
"""Trained anew on all data seen so far: what was learned earlier is thrown away."""
FORGET = (*JOINT, "finetune")
"""Nothing that was learned earlier stays as it was."""
SHARED = {
    "dualprompt": ["general"],
    "l2p": ["prompts", "keys"],
    "mos": ["head.weight", "head.bias"],
    "ranpac": ["statistics.G"],
    "slda": ["statistics.outer"],
    "tosca": ["head.sigma"],
    "tosca_routed": ["head.sigma", "router.ridge.G"],
}
"""What all tasks change together by a method's definition; the rest is each task's own."""


class TinyViT(VisionTransformer):
    """Images [B, 3, 4, 4] to [CLS] [B, 32]; its weights are seeded and larger than timm's."""

    def __init__(self) -> None:
        with seeded_globals(3):
            super().__init__(
                img_size=4, patch_size=2, embed_dim=32, depth=2, num_heads=2, num_classes=0
            )
            with torch.no_grad():
                for p in self.parameters():
                    if p.dim() > 1:
                        p.copy_(0.3 * torch.randn(p.shape))


def fresh(method: str) -> FrozenBackbone:
    """Return a new backbone that suits the method, always the same one."""
    return load_backbone(TinyViT() if method in NEED_A_VIT else TinyNet())


def make(name: str, backbone: nn.Module | None = None, **settings):
    """Build a strategy quietly."""
    cls, own = METHODS[name]
    model = fresh(name) if backbone is None else backbone
    return cls(model, **{"evaluator": None, **own, **settings})


def kept(method: str, strategy) -> dict[str, torch.Tensor]:
    """Copy all that was learned but what is SHARED; tasks or classes lie along the first axis."""
    model = strategy.model
    out = {k: v for k, v in model.state_dict().items() if not k.startswith("backbone.")}
    for name in SHARED.get(method, []):
        del out[name]
    for name in list(out):
        place, _, last = name.rpartition(".")
        age, _, what = last.partition("_")
        if age in ("old", "frozen", "new"):  # two halves of what only grows
            del out[name]
            whole = model.head.rows if place == "head" else model.rows(what).transpose(0, 1)
            out[f"{place}.{what}"] = whole
        elif last == "Q":
            out[name] = out[name].T
    return {name: value.detach().clone() for name, value in out.items()}


def assert_kept(method: str, strategy, earlier: list[dict[str, torch.Tensor]]) -> None:
    """What was kept after each earlier task is there, bit by bit."""
    now = kept(method, strategy)
    for then in earlier:
        for name, value in then.items():
            same = now[name] if value.dim() == 0 else now[name][: len(value)]
            assert torch.equal(same, value), f"{name} of an earlier task has changed"
