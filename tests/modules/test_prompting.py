"""Prefixes and prompt tokens against attention written out with explicit keys and values."""

import math

import pytest
import timm
import torch
from torch import nn

from tests.conftest import TinyNet
from tests.strategies.methods import TinyViT
from tosca_avalanche.errors import BackboneError
from tosca_avalanche.modules.prompting import prefixed, with_tokens
from tosca_avalanche.seeding import seeded_globals

D, HEADS = 32, 2


def images(n=3, seed=0, size=4):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def prefixes(n=3, length=2, blocks=(0, 1), seed=5):
    generator = torch.Generator().manual_seed(seed)
    return {
        b: (torch.randn(n, length, D, generator=generator),
            torch.randn(n, length, D, generator=generator))
        for b in blocks
    }  # fmt: skip


def slow_attention(attn, x, keys, values):
    """One image [N, d]: softmax(q k^T / sqrt) v, head by head, key by key."""
    w, b = attn.qkv.weight, attn.qkv.bias
    q, k, v = (x @ w[i * D : (i + 1) * D].T + b[i * D : (i + 1) * D] for i in range(3))
    k, v = torch.cat([keys, k]), torch.cat([values, v])
    width = D // HEADS
    out = torch.zeros_like(x)
    for h in range(HEADS):
        own = slice(h * width, (h + 1) * width)
        for n in range(len(x)):
            scores = [float(q[n, own] @ k[m, own]) / math.sqrt(width) for m in range(len(k))]
            top = max(scores)
            weights = [math.exp(s - top) for s in scores]
            for m, weight in enumerate(weights):
                out[n, own] += weight / sum(weights) * v[m, own]
    return out @ attn.proj.weight.T + attn.proj.bias


def slow_forward(vit, x, per_block):
    features = []
    for n in range(len(x)):
        tokens = vit._pos_embed(vit.patch_embed(x[n : n + 1]))[0]
        for i, block in enumerate(vit.blocks):
            keys, values = (t[n] for t in per_block.get(i, (torch.zeros(len(x), 0, D),) * 2))
            tokens = tokens + slow_attention(block.attn, block.norm1(tokens), keys, values)
            tokens = tokens + block.mlp(block.norm2(tokens))
        features.append(vit.norm(tokens)[0])
    return torch.stack(features)


@torch.no_grad()
@pytest.mark.parametrize("blocks", [(0,), (1,), (0, 1)])
def test_prefixed_forward_is_the_slow_one(blocks):
    vit, x, own = TinyViT().eval(), images(), prefixes(blocks=blocks)
    with prefixed(vit, own):
        fast = vit(x)
    torch.testing.assert_close(fast, slow_forward(vit, x, own), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(fast, vit(x), atol=1e-3)


@torch.no_grad()
def test_a_prefix_of_length_zero_is_plain_timm_exactly():
    vit, x = TinyViT().eval(), images()
    with prefixed(vit, prefixes(length=0)):
        assert torch.equal(vit(x), vit.forward(x))
        inside = vit(x)
    assert torch.equal(inside, vit(x))


@torch.no_grad()
def test_a_prefix_leaves_no_trace_even_after_an_error():
    vit, x = TinyViT().eval(), images()
    before, keys = vit(x), list(vit.state_dict())
    with pytest.raises(RuntimeError, match="inside"), prefixed(vit, prefixes()):
        assert list(vit.state_dict()) == keys
        raise RuntimeError("inside")
    assert torch.equal(vit(x), before)
    assert not any("forward" in vars(b.attn) for b in vit.blocks)


@torch.no_grad()
def test_a_mask_and_queries_normalised_by_head():
    """qk_norm normalises the image's own keys, not the prefix; a mask never hides the prefix."""
    with seeded_globals(1):
        vit = timm.models.VisionTransformer(
            img_size=4, patch_size=2, embed_dim=D, depth=1, num_heads=HEADS, num_classes=0,
            qk_norm=True,
        ).eval()  # fmt: skip
    attn = vit.blocks[0].attn
    x = torch.randn(1, 5, D, generator=torch.Generator().manual_seed(2))
    (keys, values), mask = prefixes(1)[0], torch.eye(5, dtype=torch.bool)[None, None]
    with prefixed(vit, {0: (keys, values)}):
        out = attn(x, attn_mask=mask)
    q, k, v = (p.reshape(5, HEADS, -1).transpose(0, 1) for p in attn.qkv(x)[0].chunk(3, dim=-1))
    q, k = attn.q_norm(q), attn.k_norm(k)
    keys, values = (t[0].reshape(2, HEADS, -1).transpose(0, 1) for t in (keys, values))
    rows = []
    for n in range(5):  # each token sees the prefix and itself
        own_k, own_v = (
            torch.cat([keys, k[:, n : n + 1]], 1),
            torch.cat([values, v[:, n : n + 1]], 1),
        )
        weights = (own_k @ q[:, n, :, None] / math.sqrt(D // HEADS)).softmax(dim=1)
        rows.append((weights * own_v).sum(dim=1).flatten())
    torch.testing.assert_close(out[0], attn.proj(torch.stack(rows)), atol=1e-5, rtol=1e-4)


def test_gradients_reach_the_prefix_and_not_the_transformer():
    vit = TinyViT().eval().requires_grad_(False)
    own = {b: tuple(t.requires_grad_() for t in kv) for b, kv in prefixes().items()}
    with prefixed(vit, own):
        vit(images())[:, 0].sum().backward()
    assert all(t.grad.any() for kv in own.values() for t in kv)
    assert all(p.grad is None for p in vit.parameters())


@torch.no_grad()
@pytest.mark.parametrize("layout", ["pilot", "google"])
def test_prompt_tokens_written_out(layout):
    vit, x = TinyViT().eval(), images()
    prompts = torch.randn(3, 4, D, generator=torch.Generator().manual_seed(8))
    fast = with_tokens(vit, x, prompts, layout)
    tokens = vit.patch_embed(x) + vit.pos_embed[:, 1:]
    cls = (vit.cls_token + vit.pos_embed[:, :1]).expand(3, -1, -1)
    if layout == "pilot":
        sequence, start = [cls, prompts + vit.pos_embed[:, :1], tokens], 1
    else:
        sequence, start = [prompts, cls, tokens], 0
    z = torch.cat(sequence, dim=1)
    for block in vit.blocks:
        z = block(z)
    torch.testing.assert_close(fast, vit.norm(z)[:, start : start + 4])


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [
        {"reg_tokens": 2},
        {"no_embed_class": True},
        {"class_token": False, "global_pool": "avg"},
        {"pos_embed": "none"},
        {"dynamic_img_size": True},
    ],
)
def test_other_transformers(settings):
    """No prompts: what comes out are the tokens of plain timm, whatever its prefix tokens."""
    with seeded_globals(1):
        vit = timm.models.VisionTransformer(
            img_size=8, patch_size=4, embed_dim=24, depth=2, num_heads=3, num_classes=0, **settings
        ).eval()
    x = images(size=8)
    for layout in ("pilot", "google"):
        out = with_tokens(vit, x, torch.zeros(3, 5, 24), layout)
        assert out.shape == (3, 5, 24) and torch.isfinite(out).all()
    own = {0: (torch.ones(3, 2, 24), torch.ones(3, 2, 24))}
    before = vit(x)
    with prefixed(vit, own):
        assert vit(x).shape == before.shape and not torch.equal(vit(x), before)


def test_what_can_not_take_prompts_is_named():
    vit = TinyViT()
    with pytest.raises(BackboneError, match=r"block 2.*blocks 0 to 1"), prefixed(vit, prefixes(
        blocks=(2,))):  # fmt: skip
        pass
    with pytest.raises(BackboneError, match="is a TinyNet"), prefixed(TinyNet(), prefixes()):
        pass
    vit.blocks[1].attn = nn.Identity()
    with (
        pytest.raises(BackboneError, match="block 1 has Identity with no qkv"),
        prefixed(vit, prefixes()),
    ):
        pass
    gated = TinyViT()
    gated.blocks[0].attn.gate = nn.Linear(D, D)
    with pytest.raises(BackboneError, match="a gate"), prefixed(gated, prefixes()):
        pass
