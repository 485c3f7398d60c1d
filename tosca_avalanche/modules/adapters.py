"""Parallel adapters in the blocks of a timm VisionTransformer, which stays as it is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.errors import BackboneError
from tosca_avalanche.seeding import derive_seed


class Adapter(nn.Module):
    """One parallel adapter: scale * (Wup Dropout(ReLU(Wdown u + bdown)) + bup).

    Wdown is Kaiming-uniform with a = sqrt 5 (so U(-1/sqrt d, 1/sqrt d)), all else starts
    at 0: the block starts equal to the frozen one. Dropout acts in training only and draws
    from a private generator.

    Source: AdaptFormer (NeurIPS 2022), as APER, EASE and MOS use it.

    :param dim: d, the width of the tokens.
    :param width: of the bottleneck.
    :param seed: of the initial values and of dropout.

    Shapes: input and output [B, N, d].
    """

    def __init__(
        self, dim: int, width: int = 64, scale: float = 0.1, dropout: float = 0.1, seed: int = 0
    ) -> None:
        super().__init__()
        self.scale, self.dropout = scale, dropout
        generator = torch.Generator().manual_seed(derive_seed(seed, "adapter"))
        bound = 1 / math.sqrt(dim)
        down = torch.empty(width, dim).uniform_(-bound, bound, generator=generator)
        self.down_weight, self.down_bias = nn.Parameter(down), nn.Parameter(torch.zeros(width))
        self.up_weight = nn.Parameter(torch.zeros(dim, width))
        self.up_bias = nn.Parameter(torch.zeros(dim))
        self._seed = derive_seed(seed, "dropout")
        self._draws: torch.Generator | None = None

    def forward(self, u: Tensor) -> Tensor:
        """Return what the adapter adds to its block's output."""
        hidden = F.relu(F.linear(u, self.down_weight, self.down_bias))
        if self.training and self.dropout:
            if self._draws is None or self._draws.device != u.device:
                self._draws = torch.Generator(u.device).manual_seed(self._seed)
            kept = torch.rand(hidden.shape, generator=self._draws, device=u.device) >= self.dropout
            hidden = hidden * kept / (1 - self.dropout)
        return self.scale * F.linear(hidden, self.up_weight, self.up_bias)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the generator behind: torch can't copy one."""
        return {**self.__dict__, "_draws": None}


class AdapterSet(nn.ModuleList):
    """One adapter per block: 1,189,632 parameters at ViT-B with width 64, 304,320 with 16.

    :param vit: the backbone; only its shape is read.
    """

    def __init__(
        self,
        vit: nn.Module,
        width: int = 64,
        scale: float = 0.1,
        dropout: float = 0.1,
        seed: int = 0,
    ) -> None:
        vit = checked_vit(vit)
        super().__init__(
            Adapter(vit.embed_dim, width, scale, dropout, derive_seed(seed, "block", i))
            for i in range(len(vit.blocks))
        )
        self.shape = {"width": width, "scale": scale}
        self.frozen = False

    def freeze(self) -> AdapterSet:
        """Stop learning for good: no gradient, no dropout, whatever ``train()`` says later."""
        self.frozen = True
        return self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> AdapterSet:
        """Switch dropout on or off; a frozen set stays without."""
        return super().train(mode and not self.frozen)


@contextmanager
def inserted(vit: nn.Module, adapters: AdapterSet) -> Iterator[None]:
    """Insert adapters into the blocks of ``vit`` inside the block of the ``with`` statement.

    In each block, with u = x + Attn(LN1(x)): output = u + MLP(LN2(u)) + adapter(u). The
    adapter reads u before LN2, on all tokens. Done with hooks, which are removed again:
    the transformer's code, weights and state-dict keys are never touched.
    """
    vit = checked_vit(vit)
    inputs: dict[int, Tensor] = {}
    handles = []
    for i, (block, adapter) in enumerate(zip(vit.blocks, adapters, strict=True)):

        def keep(_: nn.Module, args: tuple[Any, ...], i: int = i) -> None:
            inputs[i] = args[0]

        def add(
            _: nn.Module, __: Any, out: Tensor, i: int = i, adapter: nn.Module = adapter
        ) -> Tensor:
            return out + adapter(inputs.pop(i))

        norm: Any = block.norm2
        handles.append(norm.register_forward_pre_hook(keep))
        handles.append(block.register_forward_hook(add))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class AdaptedViT(nn.Module):
    """A frozen transformer with one set of adapters, as a module of its own.

    :param vit: the transformer; shared with others, never copied.
    """

    def __init__(self, vit: nn.Module, adapters: AdapterSet) -> None:
        super().__init__()
        self.vit, self.adapters = checked_vit(vit), adapters
        self.embed_dim = self.vit.embed_dim

    def forward(self, x: Tensor) -> Tensor:
        """Return the adapted [CLS] [B, d] of a batch of images."""
        with inserted(self.vit, self.adapters):
            return self.vit(x)


def frozen_with(backbone: FrozenBackbone, adapters: AdapterSet, name: str) -> FrozenBackbone:
    """Freeze a set of adapters and return the backbone that it makes of ``backbone``.

    The result has a fingerprint of its own, so that its features can be stored like any
    others.
    """
    return FrozenBackbone(
        AdaptedViT(backbone.module, adapters.freeze()),
        name=f"{backbone.name} + {name}",
        architecture=f"{backbone.architecture} + adapters {adapters.shape}",
        transforms=backbone.transforms,
        precision=backbone.precision,
    )


def checked_vit(module: nn.Module) -> VisionTransformer:
    """Return the module if adapters or prompts can go into it; else an error that names it."""
    if not isinstance(module, VisionTransformer):
        raise BackboneError(
            f"adapters need a timm VisionTransformer, this backbone is a "
            f"{type(module).__name__}; load one with load_backbone('tiny_vit_64') or a tagged "
            f"timm name"
        )
    for block in module.blocks:
        if not isinstance(block, Block):  # others norm elsewhere, or in parallel
            raise BackboneError(
                f"adapters and prompts need timm's plain blocks, this transformer has "
                f"{type(block).__name__}"
            )
    return module
