"""Nets that adapt the backbone on the first task and then only add up statistics."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.adapters import AdaptedViT, AdapterSet
from tosca_avalanche.modules.cosine_head import CosineHead
from tosca_avalanche.modules.incremental import IncrementalNet
from tosca_avalanche.seeding import generator


class FirstTaskNet(IncrementalNet):
    """Adapters and a throw-away cosine head learn the first task; then all is frozen.

    From then on ``backbone`` is the adapted one, with a fingerprint of its own, so that
    its features can be stored like any others.

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
        self.plain, self.paired, self.width, self.seed = [backbone], paired, width, seed
        self.adapters = AdapterSet(backbone.module, width, seed=seed) if adapt else None
        self.proxy = CosineHead(backbone.embed_dim) if adapt else None
        self.adapted = not adapt
        """True once the backbone is what it will stay."""

    @property
    def feature_dim(self) -> int:
        """Width of the features that the statistics are made of."""
        return self.plain[0].embed_dim * (2 if self.adapters is not None and self.paired else 1)

    def add_task(self, labels: list[int]) -> None:
        """Take one more task; the first one makes the proxy head's rows too."""
        super().add_task(labels)
        if self.proxy is not None and self.n_tasks == 1:
            self.proxy.grow(len(labels), generator=generator(self.seed, "proxy"))

    def first_task_outputs(self, x: Tensor) -> Tensor:
        """Return the proxy head's outputs [B, width] for images of the first task."""
        assert self.adapters is not None and self.proxy is not None
        module: nn.Module = AdaptedViT(self.plain[0].module, self.adapters)
        return self.to_outputs(self.proxy(module(x)))

    def finish_adapting(self) -> None:
        """Freeze the adapters and make them part of the backbone."""
        assert self.adapters is not None and self.proxy is not None
        plain = self.plain[0]
        self.adapters.requires_grad_(False)
        self.proxy = None
        self.adapters.eval()
        self.backbone = FrozenBackbone(
            AdaptedViT(plain.module, self.adapters, self.paired),
            name=f"{plain.name} + adapters",
            architecture=f"{plain.architecture} + adapters {self.width}, paired {self.paired}",
            transforms=plain.transforms,
            precision=plain.precision,
        )
        self.backbone.images_passed = plain.images_passed
        self.adapted = True

    def train(self, mode: bool = True) -> FirstTaskNet:
        """Keep finished adapters without dropout."""
        super().train(mode)
        if self.adapters is not None and self.adapted:
            self.adapters.eval()
        return self

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what was learned, adapters included."""
        tensors, rest = super().state()
        return tensors, {**rest, "adapted": self.adapted}

    def take_shape(self, rest: dict[str, Any]) -> None:
        """Drop the proxy head where the saved net had dropped it."""
        if rest["adapted"] and not self.adapted:
            self.finish_adapting()
