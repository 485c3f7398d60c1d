"""The cosine head against cosines written out."""

import math

import pytest
import torch

from tosca_avalanche.modules import CosineHead


def test_logits_are_sigma_times_cosine():
    head = CosineHead(5, scale_init=3.0)
    head.grow(2, generator=torch.Generator().manual_seed(0))
    head.grow(2, generator=torch.Generator().manual_seed(1))
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(2))
    for i, a in enumerate(x.tolist()):
        for j, w in enumerate(head.rows.tolist()):
            dot = sum(u * v for u, v in zip(a, w, strict=True))
            cosine = dot / math.sqrt(sum(u * u for u in a)) / math.sqrt(sum(v * v for v in w))
            assert head(x)[i, j].item() == pytest.approx(3 * cosine, abs=1e-6)


def test_rows_start_uniform_or_at_zero():
    for init, later in (("uniform", True), ("zeros", False), ("prototype", True)):
        head = CosineHead(400)
        for _ in range(2):
            head.grow(3, init, torch.Generator().manual_seed(0))
        assert head.rows[:3].abs().max() <= 1 / 20 and head.rows[:3].abs().max() > 0.9 / 20
        assert bool(head.rows[3:].any()) == later


def test_old_rows_are_frozen_or_trainable():
    for old_rows, trainable in (("frozen", 2), ("trainable", 5)):
        head = CosineHead(4, old_rows=old_rows)
        head.grow(3)
        first = head.rows.clone()
        head.grow(2)
        assert torch.equal(head.rows[:3], first)
        head(torch.ones(1, 4)).sum().backward()
        assert head.new_rows.grad.shape == (trainable, 4)


def test_zero_rows_and_zero_inputs_stay_finite():
    head = CosineHead(4)
    head.grow(1)
    head.grow(1, "zeros")
    assert torch.isfinite(head(torch.zeros(2, 4))).all()


def test_last_rows_can_be_set():
    head = CosineHead(3)
    head.grow(1)
    head.grow(2)
    old = head.rows[0].clone()
    head.set_last_rows(torch.arange(6.0).reshape(2, 3))
    assert torch.equal(head.rows, torch.cat([old[None], torch.arange(6.0).reshape(2, 3)]))


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="old_rows='x'"):
        CosineHead(3, old_rows="x")
    with pytest.raises(ValueError, match="head_init='x'"):
        CosineHead(3).grow(1, "x")
