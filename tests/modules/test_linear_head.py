"""The growing linear head."""

import math

import pytest
import torch

from tosca_avalanche.modules import LinearHead


def generator():
    return torch.Generator().manual_seed(0)


def test_grows_and_keeps_what_was_there():
    head = LinearHead(4)
    assert len(head) == 0 and head(torch.randn(2, 4)).shape == (2, 0)
    head.grow(2, generator())
    weight, bias = head.weight.detach().clone(), head.bias.detach().clone()
    head.grow(3)
    assert len(head) == 5
    assert torch.equal(head.weight[:2], weight) and torch.equal(head.bias[:2], bias)
    x = torch.randn(3, 4)
    expected = torch.stack([head.weight @ v + head.bias for v in x])
    torch.testing.assert_close(head(x), expected)


@pytest.mark.parametrize("init", ["torch", "normal", "zeros"])
def test_initial_values(init):
    head = LinearHead(400, init)
    head.grow(50, generator())
    weight, bias = head.weight.detach(), head.bias.detach()
    if init == "torch":
        bound = 1 / math.sqrt(400)
        assert 0.98 * bound < weight.abs().max() <= bound
        assert 0.5 * bound < bias.abs().max() <= bound
    elif init == "normal":
        assert weight.std().item() == pytest.approx(0.02, rel=0.05) and not bias.any()
    else:
        assert not weight.any() and not bias.any()
    again = LinearHead(400, init)
    again.grow(50, generator())
    assert torch.equal(again.weight, head.weight) and torch.equal(again.bias, head.bias)


def test_an_unknown_init_is_named():
    with pytest.raises(ValueError, match="init='xavier'"):
        LinearHead(4, "xavier")
