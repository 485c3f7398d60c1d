"""The frozen wrapper: nothing moves, and the fingerprint sees every change."""

import pytest
import timm
import torch

from tests.conftest import TinyNet
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import BackboneError


def test_always_in_evaluation_mode_and_without_gradient():
    backbone = load_backbone(TinyNet())
    wrapper = torch.nn.Sequential(backbone).train()
    assert not any(m.training for m in backbone.modules())
    x = torch.randn(8, 3, 4, 4, requires_grad=True)
    before = {k: v.clone() for k, v in backbone.state_dict().items()}
    first = wrapper(x)
    assert not first.requires_grad
    assert torch.equal(first, wrapper(x))  # no dropout, no running statistics
    assert all(torch.equal(v, before[k]) for k, v in backbone.state_dict().items())


def test_fingerprint():
    base = load_backbone(TinyNet())
    assert base.fingerprint == load_backbone(TinyNet()).fingerprint
    assert len(base.fingerprint) == 64
    other = TinyNet()
    with torch.no_grad():
        other.norm.running_mean[3] += 1e-3  # a buffer counts as well
    assert load_backbone(other).fingerprint != base.fingerprint
    paper = load_backbone(TinyNet(), transform="paper")
    assert paper.fingerprint != base.fingerprint
    deeper = TinyNet()
    deeper.dropout = torch.nn.Identity()  # same weights, another architecture
    assert load_backbone(deeper).fingerprint != base.fingerprint


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_images_that_do_not_fit_the_patches_are_named(precision):
    backbone = load_backbone("tiny_vit_64", weights="random", precision=precision)
    assert backbone(torch.zeros(2, 3, 64, 64)).shape == (2, 192)
    for shape, words in (
        ((1, 64, 64), r"'tiny_vit_64 .*\[3, 64, 64\], got \[1, 64, 64\]; .*expand\(3, -1, -1\)"),
        ((4, 64, 64), r"got \[4, 64, 64\]; build the benchmark"),
        ((3, 32, 64), r"got \[3, 32, 64\]; build the benchmark"),
        ((64, 64), r"got \[64, 64\]; build the benchmark"),
    ):
        for refused in (lambda x: backbone(x[None]), backbone.probe):
            with pytest.raises(BackboneError, match=words):
                refused(torch.zeros(shape))
    assert backbone.images_passed == 2


def test_any_size_where_the_transformer_takes_any():
    settings = {"img_size": 16, "depth": 1, "in_chans": 1, "num_classes": 0}
    vit = timm.create_model("vit_tiny_patch16_224", **settings, dynamic_img_size=True)
    assert load_backbone(vit)(torch.zeros(1, 1, 32, 48)).shape == (1, 192)
    with pytest.raises(BackboneError, match=r"\[1, H, W\], got \[3, 32, 48\]"):
        load_backbone(vit)(torch.zeros(1, 3, 32, 48))


def test_a_forward_of_ones_own_may_take_anything():
    class Grey(type(load_backbone("tiny_vit_64", weights="random").module)):
        def forward(self, x):
            return super().forward(x.expand(-1, 3, -1, -1))

    vit = Grey(img_size=16, depth=1, embed_dim=12, num_heads=1, num_classes=0)
    assert load_backbone(vit)(torch.zeros(2, 1, 16, 16)).shape == (2, 12)
