"""Prompts in a timm VisionTransformer, which stays as it is: as tokens, or as keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from tosca_avalanche.errors import BackboneError
from tosca_avalanche.modules.adapters import checked_vit

Prefix = tuple[Tensor, Tensor]


@contextmanager
def prefixed(vit: nn.Module, prefixes: dict[int, Prefix]) -> Iterator[None]:
    """Put keys and values in front of those of some blocks, inside the ``with`` statement.

    They join the ALREADY PROJECTED keys and values of a block (not through W_k, W_v), split
    into its heads, without position embedding; queries and sequence length stay. Done by a
    forward of our own on the attention's instance, which is taken off again: the
    transformer's code, weights and state-dict keys are never touched.

    :param prefixes: by block: keys [B, L, d] and values [B, L, d].
    """
    vit = checked_prefix_vit(vit, list(prefixes))
    changed: list[Any] = []
    try:
        for block, (keys, values) in prefixes.items():
            attention: Any = vit.blocks[block].attn
            if keys.shape[1]:  # without a prefix timm's own forward is the right one
                attention.forward = partial(_attend, attention, keys, values)
                changed.append(attention)
        yield
    finally:
        for attention in changed:
            del attention.forward


def _attend(
    attention: Any,
    keys: Tensor,
    values: Tensor,
    x: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Self-attention of x [B, N, d] over a prefix and itself."""
    if is_causal:
        raise BackboneError("prefixes in front of causal attention are not defined here")
    batch, n, _ = x.shape
    shape = (batch, -1, attention.num_heads, attention.head_dim)
    q, k, v = (part.reshape(shape).transpose(1, 2) for part in attention.qkv(x).chunk(3, dim=-1))
    k = torch.cat([keys.reshape(shape).transpose(1, 2), attention.k_norm(k)], dim=2)
    v = torch.cat([values.reshape(shape).transpose(1, 2), v], dim=2)
    if attn_mask is not None:
        # every query sees the whole prefix
        open_to_all = True if attn_mask.dtype == torch.bool else 0.0
        attn_mask = F.pad(attn_mask, (keys.shape[1], 0), value=open_to_all)
    dropout = attention.attn_drop.p if attention.training else 0.0
    out = F.scaled_dot_product_attention(
        attention.q_norm(q), k, v, attn_mask=attn_mask, dropout_p=dropout, scale=attention.scale
    )
    out = out.transpose(1, 2).reshape(batch, n, -1)
    out = attention.norm(out) if hasattr(attention, "norm") else out
    result: Tensor = attention.proj_drop(attention.proj(out))
    return result


def checked_prefix_vit(module: nn.Module, blocks: list[int]) -> VisionTransformer:
    """Return the module if its blocks can take a prefix; else an error that names what can't."""
    vit = checked_vit(module)
    for block in blocks:
        if not 0 <= block < len(vit.blocks):
            raise BackboneError(
                f"prompts were asked for in block {block}; this transformer has blocks 0 to "
                f"{len(vit.blocks) - 1}: choose others"
            )
        attention: Any = getattr(vit.blocks[block], "attn", None)
        parts = ("qkv", "q_norm", "k_norm", "proj", "num_heads", "head_dim", "scale")
        missing = [p for p in parts if not hasattr(attention, p)]
        if missing or getattr(attention, "gate", None) is not None:
            what = f"no {missing[0]}" if missing else "a gate"
            raise BackboneError(
                f"prefixes need timm's plain attention; block {block} has "
                f"{type(attention).__name__} with {what}"
            )
    return vit


def with_tokens(vit: VisionTransformer, x: Tensor, prompts: Tensor, layout: str) -> Tensor:
    """Pass images [B, 3, H, W] with prompt tokens [B, L, d]; return their outputs [B, L, d].

    Outputs are those after the final LayerNorm.

    :param layout: "pilot": [CLS, prompts, patches], each prompt with the CLS's position
        embedding, as LAMDA-PILOT does. "google": prompts first, without position embedding.
        All other tokens keep their own.
    """
    tokens = vit.patch_drop(vit._pos_embed(vit.patch_embed(x)))
    start = vit.num_prefix_tokens if layout == "pilot" else 0
    cls_has_position = vit.cls_token is not None and not vit.no_embed_class
    if layout == "pilot" and cls_has_position and vit.pos_embed is not None:
        prompts = prompts + vit.pos_embed[:, :1]
    tokens = torch.cat([tokens[:, :start], prompts, tokens[:, start:]], dim=1)
    tokens = vit.norm(vit.blocks(vit.norm_pre(tokens)))
    # models that pool patches have their last norm behind the pooling
    out: Tensor = vit.fc_norm(tokens[:, start : start + prompts.shape[1]])
    return out
