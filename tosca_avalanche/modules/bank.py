"""The bank of LuCA modules: one per task, all frozen but the newest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tosca_avalanche.modules.luca import LuCA

BLOCK = 16


class ModuleBank(nn.Module):
    """The modules of all tasks; calling it gives every module's view of every token.

    Frozen modules live in blocks of stacked weights, so that one batched product serves
    all modules of a block. A module's own parameters are views into its block: nothing is
    stored twice, and adding a task copies none of the earlier ones.

    Shapes: input [B, d], output [T, B, d] with T the number of modules. All modules have
    the same settings.
    """

    def __init__(self) -> None:
        super().__init__()
        self.luca = nn.ModuleList()
        self.blocks: list[dict[str, Tensor]] = []
        self._stacked = 0
        self.register_load_state_dict_post_hook(_forget_stack)

    def __len__(self) -> int:
        return len(self.luca)

    @property
    def current(self) -> LuCA:
        """The newest module."""
        if not len(self.luca):
            raise RuntimeError("the bank is empty: add a module before asking for the current one")
        return self.luca[-1]  # type: ignore[return-value]

    @property
    def learning(self) -> bool:
        """True while the newest module takes gradients; no other one can."""
        return len(self.luca) > 0 and next(self.current.parameters()).requires_grad

    def add(self, module: LuCA) -> None:
        """Append a module; all earlier ones are frozen."""
        self.freeze()
        self.luca.append(module)

    def freeze(self) -> None:
        """Freeze every module there is, and stack them."""
        if len(self.luca):
            self.current.requires_grad_(False)
            self._stack()

    def trainable(self) -> list[nn.Parameter]:
        """Return the parameters that take gradients, without a look at every module."""
        return [*self.current.parameters()] if self.learning else []

    def train(self, mode: bool = True) -> ModuleBank:
        """Set the mode of the newest module: a frozen one does the same in both."""
        self.training = self.luca.training = mode
        if len(self.luca):
            self.current.train(mode)
        return self

    def unstack(self) -> None:
        """Forget the stacked copies; the next evaluation makes them anew."""
        self.blocks, self._stacked = [], 0

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # Avalanche moves the model to its device before each experience: where the blocks are
        # there already, so are the hundreds of modules that lie in them
        heads = [next(iter(block.values())) for block in self.blocks]
        places = [head.data_ptr() for head in heads]
        if (
            heads
            and all(fn(head) is head for head in heads)
            and (places == [head.data_ptr() for head in heads])
        ):
            for module in self.luca[self._stacked :]:
                module._apply(fn)
            return self
        # a move to another device or type gives the parameters new memory, apart from the blocks
        before = next((p.data_ptr() for p in self.luca.parameters()), 0)
        out = super()._apply(fn, recurse)
        if before != next((p.data_ptr() for p in self.luca.parameters()), 0):
            self.unstack()
        return out

    @torch.no_grad()
    def _stack(self) -> int:
        """Move frozen modules that are not in a block yet into one; return how many are stacked."""
        frozen = len(self.luca)
        if self.learning:
            frozen -= 1
        for index in range(self._stacked, frozen):
            slot, own = index % BLOCK, dict(self.luca[index].named_parameters())
            if slot == 0:
                self.blocks.append({k: p.new_empty(BLOCK, *p.shape) for k, p in own.items()})
            for name, parameter in own.items():
                self.blocks[-1][name][slot].copy_(parameter)
                parameter.data = self.blocks[-1][name][slot]
        self._stacked = max(self._stacked, frozen)
        return frozen

    def forward(self, z: Tensor) -> Tensor:
        """Return L_t(z) for every module t: [T, B, d]."""
        if not len(self.luca):
            return z.new_empty(0, *z.shape)
        if torch.is_grad_enabled() and self.learning:
            return torch.stack([module(z) for module in self.luca])
        stacked = self._stack()
        parts = []
        for start in range(0, stacked, BLOCK):
            count = min(BLOCK, stacked - start)
            weights = {k: v[:count] for k, v in self.blocks[start // BLOCK].items()}
            parts.append(functional_call(self.luca[0], weights, (z,)))
        parts += [module(z).unsqueeze(0) for module in self.luca[stacked:]]
        return torch.cat(parts)


def _forget_stack(bank: ModuleBank, incompatible_keys: Any) -> None:
    """Hook after ``load_state_dict``; a function of the module, so that a bank can be pickled."""
    bank.unstack()
