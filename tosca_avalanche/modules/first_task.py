"""Nets that adapt the backbone on the first task and then only add up statistics."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.adapters import AdaptedViT, AdapterSet, frozen_with
from tosca_avalanche.modules.cosine_head import CosineHead
from tosca_avalanche.modules.incremental import IncrementalNet
from tosca_avalanche.seeding import derive_seed, generator


class FirstTaskNet(IncrementalNet):
    """Adapters and a throw-away cosine head learn the first task; then all is frozen.

    From then on features come from the adapted backbone.

    :param adapt: False keeps the frozen backbone's [CLS].
    :param width: of the adapters.
    :param paired: features [frozen CLS, adapted CLS] (APER) or the adapted CLS alone.
    """

    def __init__(
        self,
        backbone: FrozenBackbone,
        *,
        adapt: bool = True,
        width: int = 64,
        paired: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(backbone)
        self.paired, self.seed = paired, seed
        own = derive_seed(seed, "adapters", 0)
        self.adapters = AdapterSet(backbone.module, width, seed=own) if adapt else None
        self.proxy = CosineHead(backbone.embed_dim) if adapt else None
        self._extractors = [backbone]
        self.adapting = adapt
        """True until the adapters have learned the first task."""

    @property
    def extractors(self) -> list[FrozenBackbone]:
        """The adapted backbone, behind the plain one where both are wanted."""
        return self._extractors

    @property
    def feature_dim(self) -> int:
        """Width of the features that the statistics are made of."""
        return self.backbone.embed_dim * (2 if self.adapters is not None and self.paired else 1)

    def add_task(self, labels: list[int]) -> None:
        """Take one more task; the first one makes the proxy head's rows too."""
        super().add_task(labels)
        if self.proxy is not None and self.n_tasks == 1:
            self.proxy.grow(len(labels), generator=generator(self.seed, "proxy", 0))

    def task_outputs(self, x: Tensor) -> Tensor:
        """Return the proxy head's outputs [B, width] for images of the first task."""
        assert self.adapters is not None and self.proxy is not None
        self.images_trained += len(x) * self.training
        module: nn.Module = AdaptedViT(self.backbone.module, self.adapters)
        return self.task_to_outputs(self.proxy(module(x)))

    def finish_adapting(self) -> None:
        """Freeze the adapters; features come through them from now on."""
        assert self.adapters is not None and self.proxy is not None
        self.proxy = None
        adapted = frozen_with(self.backbone, self.adapters, "adapters")
        self._extractors = [self.backbone, adapted] if self.paired else [adapted]
        self.adapting = False

    def rest(self) -> dict[str, Any]:
        """Return what was learned beside tensors, and whether adapters are still learning."""
        return {**super().rest(), "adapting": self.adapting}

    def take_shape(self, rest: dict[str, Any]) -> None:
        """Drop the proxy head where the saved net had dropped it."""
        if not rest["adapting"] and self.adapting:
            self.finish_adapting()
