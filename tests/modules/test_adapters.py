"""Parallel adapters against a forward pass written out block by block."""

import copy

import pytest
import timm
import torch
from timm.models.vision_transformer import ResPostBlock

from tests.conftest import TinyNet
from tests.strategies.methods import TinyViT
from tosca_avalanche.errors import BackboneError
from tosca_avalanche.modules import AdaptedViT, AdapterSet
from tosca_avalanche.modules.adapters import Adapter, inserted


def filled(vit, width=4):
    adapters = AdapterSet(vit, width)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in adapters.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    return adapters.eval()


def literal(vit, adapters, x):
    """u = x + Attn(LN1 x); out = u + MLP(LN2 u) + 0.1 (Wup ReLU(Wdown u + bdown) + bup)."""
    tokens = vit._pos_embed(vit.patch_embed(x))
    for block, a in zip(vit.blocks, adapters, strict=True):
        u = tokens + block.attn(block.norm1(tokens))
        hidden = torch.relu(u @ a.down_weight.T + a.down_bias)
        tokens = u + block.mlp(block.norm2(u)) + 0.1 * (hidden @ a.up_weight.T + a.up_bias)
    return vit.norm(tokens)[:, 0]


@torch.no_grad()
def test_forward_is_the_formula():
    vit = TinyViT().eval()
    adapters = filled(vit)
    x = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    expected = literal(vit, adapters, x)
    torch.testing.assert_close(AdaptedViT(vit, adapters)(x), expected)
    assert not torch.allclose(vit(x), expected)


@torch.no_grad()
def test_fresh_adapters_change_nothing_and_leave_no_trace():
    vit = TinyViT().eval()
    x = torch.randn(3, 3, 4, 4)
    keys, before = list(vit.state_dict()), vit(x)
    assert torch.equal(AdaptedViT(vit, AdapterSet(vit).eval())(x), before)
    with pytest.raises(RuntimeError, match="inside"), inserted(vit, filled(vit)):
        raise RuntimeError("inside")
    assert torch.equal(vit(x), before) and list(vit.state_dict()) == keys
    assert not any(b._forward_hooks or b.norm2._forward_pre_hooks for b in vit.blocks)


@pytest.mark.parametrize(("width", "count"), [(64, 1_189_632), (16, 304_320)])
def test_parameter_counts_at_vit_b(width, count):
    with torch.device("meta"):
        vit = timm.create_model("vit_base_patch16_224", pretrained=False, num_classes=0)
    assert sum(p.numel() for p in AdapterSet(vit, width).parameters()) == count


def test_initial_values_and_dropout():
    a, b = Adapter(400, 8, seed=1), Adapter(400, 8, seed=1)
    assert torch.equal(a.down_weight, b.down_weight)
    assert 0.9 / 20 < a.down_weight.abs().max() <= 1 / 20
    assert not any(p.any() for n, p in a.named_parameters() if n != "down_weight")
    with torch.no_grad():
        a.up_weight.fill_(1.0)
    u = torch.randn(40, 7, 400, generator=torch.Generator().manual_seed(0))
    state = torch.get_rng_state()
    first, second = a.train()(u), a(u)
    assert torch.equal(state, torch.get_rng_state()), "dropout has a generator of its own"
    assert not torch.equal(first, second)
    a.eval()
    torch.testing.assert_close(torch.stack([a.train()(u) for _ in range(400)]).mean(0),
                               a.eval()(u), atol=0.08, rtol=0.1)  # fmt: skip
    again = copy.deepcopy(a).train()
    assert again(u).shape == u.shape


def test_gradients_reach_the_adapters_and_not_the_transformer():
    vit = TinyViT().eval().requires_grad_(False)
    adapters = filled(vit).train()
    AdaptedViT(vit, adapters)(torch.randn(2, 3, 4, 4))[:, 0].sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in adapters[0].parameters())
    assert all(p.grad is None for p in vit.parameters())


def test_a_transformer_with_other_blocks_is_named():
    vit = timm.models.VisionTransformer(
        img_size=4, patch_size=2, embed_dim=8, depth=1, num_heads=2, num_classes=0,
        block_fn=ResPostBlock,
    )  # fmt: skip
    with pytest.raises(BackboneError, match="plain blocks, this transformer has ResPostBlock"):
        AdapterSet(vit)


def test_what_is_no_vision_transformer_is_named():
    with pytest.raises(BackboneError, match="is a TinyNet"):
        AdapterSet(TinyNet())
