"""Counts of parameters against sums by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tosca_avalanche.metrics import count_parameters, count_trainable


class LucaSized(nn.Module):
    """The layers of one LuCA at d = 768, r = 48, without its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(768, 48), nn.Linear(48, 768)
        self.norm = nn.LayerNorm(768)
        self.squeeze = nn.Linear(768, 48, bias=False)
        self.expand = nn.Linear(48, 768, bias=False)


def test_luca_by_hand() -> None:
    # methods.md: 74,544 + 73,728 + 1,536 = 4dr + 3d + r
    assert count_parameters(LucaSized()) == 149_808 == 4 * 768 * 48 + 3 * 768 + 48
    assert count_trainable(LucaSized()) == 149_808


def test_buffers_count_as_values_held_but_not_trained() -> None:
    module = nn.Linear(3, 2)
    module.register_buffer("prototypes", torch.zeros(5, 3))
    module.register_buffer("scratch", torch.zeros(7), persistent=False)
    assert count_parameters(module) == 3 * 2 + 2 + 5 * 3 + 7
    assert count_trainable(module) == 3 * 2 + 2


def test_frozen_parameters_are_held_but_not_trained() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4))
    module[0].requires_grad_(False)
    assert count_parameters(module) == 8 + 12
    assert count_trainable(module) == 12


def test_tied_weights_count_once() -> None:
    a, b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    b.weight = a.weight
    assert count_parameters(nn.Sequential(a, b)) == 9
    assert count_trainable(nn.Sequential(a, b)) == 9


class Shared(nn.Module):
    """A parameter and views of it in buffers."""

    def __init__(self, weight: Tensor, *views: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        for index, view in enumerate(views):
            self.register_buffer(f"view_{index}", view)


def test_memory_shared_by_objects_counts_once() -> None:
    memory = torch.zeros(4, 3)
    assert count_parameters(Shared(memory, memory)) == 12
    assert count_parameters(Shared(memory, memory.T)) == 12
    assert count_parameters(Shared(memory, memory[:2])) == 12
    assert count_parameters(Shared(memory, memory.clone())) == 24


def test_parts_of_one_memory_add_up() -> None:
    memory = torch.zeros(10)
    assert count_parameters(Shared(memory[:4], memory[4:])) == 10
    assert count_parameters(Shared(memory[:4], memory[6:])) == 8
    assert count_parameters(Shared(memory[:6], memory[4:8])) == 8
    assert count_parameters(Shared(memory[::2])) == 5


def test_an_expanded_buffer_holds_one_value() -> None:
    module = nn.Module()
    module.register_buffer("ones", torch.ones(1).expand(100))
    assert count_parameters(module) == 1


def test_meta_and_empty_tensors() -> None:
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2))
    assert count_parameters(module) == 16
    assert count_parameters(Shared(torch.zeros(0, 3), torch.zeros(0))) == 0
    assert count_parameters(nn.Identity()) == 0


def test_counts_are_plain_python_ints() -> None:
    assert type(count_parameters(nn.Linear(2, 2))) is int
    assert type(count_trainable(nn.Linear(2, 2))) is int
    assert type(count_parameters(Shared(torch.zeros(3)[::2]))) is int
