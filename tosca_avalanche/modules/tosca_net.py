"""TOSCA as a plain torch net: a frozen backbone, one LuCA module per task, one cosine head."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.bank import ModuleBank
from tosca_avalanche.modules.cosine_head import HEAD_INITS, CosineHead
from tosca_avalanche.modules.incremental import IncrementalNet
from tosca_avalanche.modules.luca import LuCA
from tosca_avalanche.modules.router import Router
from tosca_avalanche.seeding import generator
from tosca_avalanche.selection import (
    SELECTIONS,
    batch_vote,
    entropy,
    own_log_posterior,
    route,
    select_entropy,
    select_oracle,
)

# numbers in the largest array of an evaluation step: 8 MB in single precision
PART_NUMBERS = 2**21
ROWS = ("prototype", "trained")
ROUTED = {
    "ce_scope": "task",
    "scale_init": 16.0,
    "rows": "trained",
    "selection": "gaussian-ridge",
}
"""The settings that are recommended here, ``ToscaNet(backbone, **ROUTED)``: docs/selection.md."""
PRESETS: dict[str, dict[str, Any]] = {"paper": {}, "routed": ROUTED}


class ToscaNet(IncrementalNet):
    """The model of TOSCA (TMLR 2026), trainable by any loop.

    In training mode the newest module and the head give the logits; in evaluation mode
    every module scores the image over all seen classes and the selection rule picks the
    one that answers.

    :param backbone: frozen backbone, images to [B, d].
    :param bottleneck: r of the modules; default d // 16.
    :param norm: place of LuCA's LayerNorm, see :class:`LuCA`.
    :param flow: order of LuCA's parts, see :class:`LuCA`.
    :param first_init: initialisation of the first module, "xavier" or "torch" (the
        authors' code leaves the first module at PyTorch's default).
    :param head_init: new head rows: "uniform" (default), "zeros" (authors' code; such
        rows jump to a norm of 1e9 in the first step and keep that direction), "prototype".
    :param old_rows: "frozen" (default) or "trainable" (authors' code).
    :param ce_scope: training logits over all classes "seen" (authors' code) or only those
        of the "task".
    :param scale_init: sigma at the start.
    :param selection: "entropy" per image (default, the paper's words), "entropy-batch"
        (the authors' code; leaks the task), "oracle" (needs task ids; a ceiling),
        "gaussian-ridge" per image (:func:`~tosca_avalanche.selection.route`): statistics of
        the frozen features score the classes, see :class:`Router`, and each module its own.
    :param rows: head rows of a finished task: "prototype", the mean L(z) of each class
        (the paper), or "trained", as training left them.
    :param projection: random features of the router's ridge regression, see :class:`Router`.
    :param ridge_weight: weight of that regression.
    :param seed: seed of every initial value; task t's values do not depend on earlier draws.
    """

    task_parts: tuple[str, ...] = ("bank.luca",)
    """Tensors PREFIX.t.NAME of the state, for these prefixes, are task t's own."""
    class_parts: tuple[str, ...] = ("router.gaussians.outer_",)
    """Tensors PREFIXc of the state, for these prefixes, are those of the class at position c."""

    def __init__(
        self,
        backbone: FrozenBackbone,
        *,
        bottleneck: int | None = None,
        norm: str = "post",
        flow: str = "adapter-calibrator",
        first_init: str = "xavier",
        head_init: str = "uniform",
        old_rows: str = "frozen",
        ce_scope: str = "seen",
        scale_init: float = 1.0,
        selection: str = "entropy",
        rows: str = "prototype",
        projection: int = 2000,
        ridge_weight: float = 30.0,
        seed: int = 0,
    ) -> None:
        super().__init__(backbone)
        for name, value, allowed in (
            ("ce_scope", ce_scope, ("seen", "task")),
            ("selection", selection, SELECTIONS),
            ("head_init", head_init, HEAD_INITS),
            ("rows", rows, ROWS),
        ):
            if value not in allowed:
                raise ValueError(f"ToscaNet: {name}={value!r} is unknown; choose one of {allowed}")
        LuCA(1, bottleneck, norm, flow, first_init)  # refuses bad values now, not at the first task
        CosineHead(1, scale_init, old_rows)
        Router(1, min(1, projection), ridge_weight)
        self.bottleneck, self.norm, self.flow, self.first_init = bottleneck, norm, flow, first_init
        self.head_init, self.old_rows, self.scale_init = head_init, old_rows, scale_init
        self.ce_scope, self.selection, self.seed = ce_scope, selection, seed
        self.rows, self.projection, self.ridge_weight = rows, projection, ridge_weight
        self.bank = ModuleBank()
        self.sigmas: list[float] = []
        """The head's scale at the end of each task, so that the newest ones can be taken back."""

    @property
    def routed(self) -> bool:
        """True where the selection rule keeps statistics of the features."""
        return self.selection == "gaussian-ridge"

    def build(self, dim: int) -> None:
        """Make the head, and the router where the selection rule has one."""
        self.head = CosineHead(dim, self.scale_init, self.old_rows)
        if self.routed:
            self.router = Router(dim, self.projection, self.ridge_weight, self.seed)

    def grow(self, labels: list[int]) -> None:
        """Add a fresh module (no warm start) and the task's head rows; freeze earlier modules."""
        t, init = self.n_tasks, "xavier" if self.n_tasks else self.first_init
        module = LuCA(
            self.backbone.embed_dim,
            self.bottleneck,
            self.norm,
            self.flow,
            init,
            generator(self.seed, "luca", t),
        )
        self.bank.add(module.to(self.device))
        self.head.grow(len(labels), self.head_init, generator(self.seed, "head", t))
        if self.routed:
            self.router.grow(len(set(labels) - set(self.classes)))

    def trainable(self) -> list[nn.Parameter]:
        """Return the parameters that take gradients, without a look at every frozen module."""
        others = [part for part in self.children() if part is not self.bank]
        free = [p for part in others for p in part.parameters() if p.requires_grad]
        return [*self.bank.trainable(), *free]

    def observe(self, z: Tensor, y: Tensor) -> None:
        """Add a finished task's features [B, d] with labels [B] to the router's statistics."""
        if self.routed:
            self.router.update(z, self.positions(y))

    def set_prototypes(self, prototypes: Tensor) -> None:
        """Make ``prototypes`` [classes of the newest task, d] (by increasing label) its rows."""
        self.head.set_last_rows(prototypes)

    def finish_task(self, prototypes: Tensor) -> None:
        """Store the task's prototypes as its rows, unless they stay trained; freeze its module."""
        if self.rows == "prototype":
            self.set_prototypes(prototypes)
        self.bank.freeze()
        self.sigmas.append(self.head.sigma.item())
        if self.head.sigma <= 0:
            warnings.warn(
                f"the head's scale sigma is {self.head.sigma.item():.3g} after task "
                f"{self.n_tasks - 1}: a scale that is not positive turns the answers around; lower "
                f"the learning rate, or start with a larger scale_init",
                stacklevel=2,
            )

    def rest(self) -> dict[str, Any]:
        """Return what was learned beside tensors, see :meth:`IncrementalNet.state`."""
        return {**super().rest(), "sigmas": [*self.sigmas]}

    def changed_by(self, labels: Iterable[int]) -> list[Tensor]:
        """Return the tensors that a task of these labels changes where they lie.

        All others it leaves as they are, or puts new ones in their place.
        """
        changed: list[Tensor] = [self.head.sigma] if self.n_tasks else []
        if self.routed and self.n_tasks:
            own = set(labels)
            again = [c for c, label in enumerate(self.classes) if label in own]
            changed += [self.router.gaussians.outer(c) for c in again]
            changed += [] if self.router.ridge is None else [self.router.ridge.G]
        return changed

    def take_shape(self, rest: dict[str, Any]) -> None:
        """Take back the scales of the earlier tasks, where the state has them."""
        self.sigmas = [*rest.get("sigmas", [])]

    def classify(self, z: Tensor, task_ids: Tensor | None = None) -> Tensor:
        """Return outputs [B, width] for features z [B, d].

        :param task_ids: [B] true tasks, only for ``selection="oracle"``.
        """
        if self.training:
            logits = self.merge_rows(self.head(self.bank.current(z)))
            return self.to_outputs(
                logits, self.task_classes[-1] if self.ce_scope == "task" else None
            )
        if not self.n_tasks:
            return self.to_outputs(z)
        if self.selection == "oracle" and task_ids is None:
            raise ValueError("selection='oracle' needs task_ids; pass them, or use 'entropy'")
        size = self.part_size(z)
        if self.selection == "entropy-batch":
            entropies = [entropy(self.module_logits(part)) for part in z.split(size)]
            self.last_modules = batch_vote(torch.cat(entropies, dim=1))
            luca = self.bank.luca[int(self.last_modules[0])]
            return self.to_outputs(self.merge_rows(self.head(luca(z))))
        ids: Iterable[Tensor | None] = itertools.repeat(None)
        if self.selection == "oracle" and task_ids is not None:
            ids = task_ids.split(size)
        chosen, modules_of = [], []
        for part, part_ids in zip(z.split(size), ids, strict=False):
            if self.routed:
                scores, modules = self.routed_scores(part, self.head(self.bank(part)))
                chosen.append(scores)
                modules_of.append(modules)
                continue
            logits = self.module_logits(part)
            if part_ids is None:
                modules = select_entropy(logits)
            else:
                modules = select_oracle(logits, part_ids)
            modules_of.append(modules)
            chosen.append(logits[modules, torch.arange(len(part), device=z.device)])
        self.last_modules = torch.cat(modules_of)
        return self.to_outputs(torch.cat(chosen))

    def part_size(self, z: Tensor) -> int:
        """Return how many images to take at once to keep all modules' logits small."""
        widest = max(z.shape[1], len(self.row_labels))
        if self.routed:  # the router whitens every image once for each class
            widest = max(widest, z.shape[1] * len(self.classes) // self.n_tasks)
        return max(1, PART_NUMBERS // (self.n_tasks * widest))

    def module_logits(self, z: Tensor) -> Tensor:
        """Return every module's logits over the seen classes, [T, B, C], for features [B, d]."""
        return self.merge_rows(self.head(self.bank(z)))

    def routed_scores(self, z: Tensor, row_logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores [B, C] and the module that answers [B] of the routed rule.

        :param row_logits: [T, B, R], every module's logits of every row.
        """
        tasks = self.row_tasks().to(z.device)
        rows = own_log_posterior(row_logits, tasks)
        scores, best = route(self.router(z), rows, self.row_index.to(z.device))
        return scores, tasks[best]
