"""The stacked bank against a loop over single modules."""

import pytest
import torch

from tosca_avalanche.modules import LuCA, ModuleBank
from tosca_avalanche.modules.bank import BLOCK
from tosca_avalanche.modules.luca import FLOWS, NORMS


def filled(n, flow="adapter-calibrator", norm="post", dim=24):
    bank = ModuleBank()
    for t in range(n):
        generator = torch.Generator().manual_seed(t)
        module = LuCA(dim, 5, norm, flow, generator=generator)
        with torch.no_grad():
            for p in module.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=generator))
        bank.add(module)
    return bank


def loop(bank, z):
    with torch.no_grad():
        return torch.stack([module(z) for module in bank.luca])


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("norm", NORMS)
def test_equal_to_the_loop(flow, norm):
    z = torch.randn(7, 24, generator=torch.Generator().manual_seed(9))
    bank = filled(BLOCK + 3, flow, norm)
    expected = loop(bank, z)
    for _ in (False, True):  # the newest still learning, then not
        with torch.no_grad():
            torch.testing.assert_close(bank(z), expected, atol=1e-5, rtol=1e-5)
        bank.freeze()


def test_an_empty_bank():
    assert ModuleBank()(torch.zeros(3, 4)).shape == (0, 3, 4)
    with pytest.raises(RuntimeError, match="empty"):
        _ = ModuleBank().current


@torch.no_grad()
def test_adding_copies_nothing_and_nothing_is_stored_twice():
    bank = filled(BLOCK * 2 + 1)
    bank.freeze()
    bank(torch.zeros(1, 24))
    places = [p.data_ptr() for p in bank.parameters()]
    blocks = sum(b.numel() for block in bank.blocks for b in block.values())
    own = sum(p.numel() for p in bank.luca[0].parameters())
    assert blocks == 3 * BLOCK * own
    inside = {b.data_ptr() for block in bank.blocks for b in block.values()}
    assert {p.data_ptr() for p in bank.luca[0].parameters()} <= inside
    bank.add(LuCA(24, 5))
    bank.freeze()
    bank(torch.zeros(1, 24))
    assert [p.data_ptr() for p in bank.parameters()][: len(places)] == places


@torch.no_grad()
def test_loading_and_moving_are_seen():
    z = torch.randn(4, 24)
    bank, other = filled(3), filled(3, dim=24)
    bank.freeze()
    bank(z)
    state = {k: v + 0.5 for k, v in other.state_dict().items()}
    bank.load_state_dict(state)
    torch.testing.assert_close(bank(z), loop(bank, z))
    bank.double()
    torch.testing.assert_close(bank(z.double()), loop(bank, z.double()))
    bank.luca[1].W1.zero_()  # a change in place shows as well: parameters are views
    torch.testing.assert_close(bank(z.double()), loop(bank, z.double()))


def test_a_move_is_seen_by_modules_in_blocks_and_outside_of_them():
    bank = filled(BLOCK + 2)
    assert bank._stacked == BLOCK + 1  # all but the newest, which is learning
    places = [p.data_ptr() for p in bank.parameters()]
    assert bank.to("cpu") is bank
    assert [p.data_ptr() for p in bank.parameters()] == places
    bank.double()
    assert {p.dtype for p in bank.parameters()} == {torch.float64} and bank._stacked == 0
    bank.float().freeze()
    bank.add(LuCA(24, 5).double())  # alone of another type
    bank.float()
    assert {p.dtype for p in bank.parameters()} == {torch.float32}
    bank.share_memory()
    assert all(p.is_shared() for p in bank.parameters())


def test_what_takes_gradients_and_which_mode():
    bank = ModuleBank()
    assert bank.trainable() == [] and bank.train().training
    bank = filled(3)
    assert list(map(id, bank.trainable())) == [id(p) for p in bank.parameters() if p.requires_grad]
    assert not bank.eval().current.training and not bank.training
    assert bank.train().current.training
    bank.freeze()
    assert bank.trainable() == []


def test_gradients_flow_to_the_newest():
    bank = filled(3)
    bank(torch.randn(2, 24)).sum().backward()
    assert bank.current.W1.grad is not None and bank.luca[0].W1.grad is None
