"""What EASE and MOS share: one set of adapters per task, frozen when its task is over."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.adapters import AdaptedViT, AdapterSet, frozen_with
from tosca_avalanche.modules.incremental import IncrementalNet
from tosca_avalanche.seeding import derive_seed


class AdapterPerTaskNet(IncrementalNet):
    """One adapter set per task; the features of an image are those of all sets, side by side.

    A frozen set never changes again, so its features of an image are good for ever: each
    set is an extractor with a fingerprint of its own.

    Subclasses say how a task is trained (``task_outputs``), what is kept of it (``learn``,
    ``end_task``) and how an image is answered (``classify``, features [B, T d]).
    """

    def __init__(self, backbone: FrozenBackbone, *, width: int, seed: int = 0) -> None:
        super().__init__(backbone)
        AdapterSet(backbone.module, width)  # refuses a wrong backbone before any training
        self.width, self.seed = width, seed
        self.sets = nn.ModuleList()
        self._extractors: list[FrozenBackbone] = []

    @property
    def extractors(self) -> list[FrozenBackbone]:
        """One adapted backbone per frozen set; the plain one before there is any."""
        return self._extractors or [self.backbone]

    @property
    def statistics_from(self) -> list[FrozenBackbone]:
        """The extractors whose features of a task's images the net keeps statistics of."""
        return self._extractors

    def new_set(self) -> AdapterSet:
        """Make the adapters of the next task, on the device of the net."""
        seed = derive_seed(self.seed, "adapters", self.n_tasks)
        return AdapterSet(self.backbone.module, self.width, seed=seed).to(self.device)

    def grow(self, labels: list[int]) -> None:
        """Add the task's set of adapters."""
        self.sets.append(self.new_set())
        self.adapting = True

    def adapted_features(self, x: Tensor) -> Tensor:
        """Return the [CLS] [B, d] of images under the newest set, with gradients."""
        self.images_trained += len(x) * self.training
        newest = self.sets[-1]
        assert isinstance(newest, AdapterSet)
        module: nn.Module = AdaptedViT(self.backbone.module, newest)
        z: Tensor = module(x)
        return z

    def finish_adapting(self) -> None:
        """Freeze the newest set and look through it from now on."""
        i = len(self._extractors)
        adapters = self.sets[i]
        assert isinstance(adapters, AdapterSet)
        self._extractors.append(frozen_with(self.backbone, adapters, f"adapters {i}"))
        self.adapting = False

    def take_shape(self, rest: dict[str, Any]) -> None:
        """Freeze the sets of a saved net whose tasks are over."""
        for _ in self.sets:
            AdapterPerTaskNet.finish_adapting(self)
