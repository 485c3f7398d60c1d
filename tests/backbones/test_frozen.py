"""The frozen wrapper: nothing moves, and the fingerprint sees every change."""

import torch

from tests.conftest import TinyNet
from tosca_avalanche.backbones import load_backbone


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
