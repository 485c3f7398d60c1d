"""The frozen wrapper around a backbone."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import Tensor, nn

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.errors import BackboneError

PRECISIONS = ("float32", "bfloat16", "float16")


class FrozenBackbone(nn.Module):
    """A backbone that maps a batch of images to features [B, d] and never changes.

    Always in evaluation mode, whatever ``train()`` says; no parameter takes a gradient.

    :param module: any module from a batch to [B, d]. It is frozen in place, not copied.
    :param name: what results call it; ``architecture`` tells two shapes of it apart.
    :param transforms: image transforms that fit the weights.
    :param embed_dim: d; by default ``module.embed_dim`` or ``module.num_features``, and
        where neither is there, known after the first image (:meth:`probe`).
    :param precision: "float32", or "bfloat16" or "float16" to run the backbone under
        autocast; features come out in float32 and the fingerprint is another. Passes with
        gradients (adapters, prompts, finetuning) and prompted ones stay in float32.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        name: str,
        transforms: Transforms,
        architecture: str | None = None,
        embed_dim: int | None = None,
        precision: str = "float32",
    ) -> None:
        super().__init__()
        self.module = module.requires_grad_(False).eval()
        if precision not in PRECISIONS:
            raise BackboneError(f"precision={precision!r} is unknown; choose one of {PRECISIONS}")
        self.name, self.transforms, self.precision = name, transforms, precision
        self.architecture = architecture or f"{type(module).__qualname__}\n{module!r}"
        if precision != "float32":
            self.architecture += f" in {precision}"
        known = (
            embed_dim or getattr(module, "embed_dim", None) or getattr(module, "num_features", None)
        )
        self._embed_dim: int | None = int(known) if isinstance(known, int) else None
        self._fingerprint: str | None = None
        self._takes = _stated_input(module)
        self.images_passed = 0
        """How many images went through so far, repeated ones counted again."""
        self.eval()

    @property
    def embed_dim(self) -> int:
        """Width d of the features."""
        if self._embed_dim is None:
            raise BackboneError(
                f"the feature width of backbone {self.name!r} is not known yet: pass embed_dim=, "
                f"or run probe() on an image first"
            )
        return self._embed_dim

    @property
    def device(self) -> torch.device:
        """Device of the first parameter or buffer, the CPU where there is none."""
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            return tensor.device
        return torch.device("cpu")

    @property
    def fingerprint(self) -> str:
        """Sha-256 (hex) over architecture, weights and transform parameters.

        Two backbones with one fingerprint give the same features for the same image file.
        """
        if self._fingerprint is None:
            digest = hashlib.sha256(self.architecture.encode())
            digest.update(json.dumps(self.transforms.parameters, sort_keys=True).encode())
            for key, value in sorted(self.module.state_dict().items()):
                digest.update(f"{key} {tuple(value.shape)} {value.dtype}".encode())
                raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                digest.update(raw.numpy().data)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def probe(self, image: Any) -> int:
        """Learn the feature width from one image [3, H, W], where it is not known.

        :raises BackboneError: the image is no tensor, or none that :meth:`check` lets pass.
        """
        if not isinstance(image, Tensor):
            raise BackboneError(
                f"backbone {self.name!r} needs image tensors, the data set gives "
                f"{type(image).__name__}; build the benchmark with transforms, for instance "
                f"backbone.transforms.train and backbone.transforms.eval"
            )
        self.check(image.unsqueeze(0))
        if self._embed_dim is None:
            self._embed_dim = int(self(image.unsqueeze(0).to(self.device)).shape[1])
        return self._embed_dim

    def check(self, x: Tensor) -> None:
        """Refuse a batch of images that a transformer of timm can't cut into its patches.

        Of other modules it is not known what they take: they say it themselves.

        :raises BackboneError: other channels or pixels than the patch embedding takes.
        """
        if self._takes is None:
            return
        channels, pixels = self._takes
        shape = list(x.shape[1:])
        if len(shape) == 3 and shape[0] == channels and pixels in (None, tuple(shape[1:])):
            return
        wanted = [channels, *(pixels or ("H", "W"))]
        grey = len(shape) == 3 and shape[0] == 1
        hint = f"make a grey tensor wider by x.expand({channels}, -1, -1), or " if grey else ""
        raise BackboneError(
            f"backbone {self.name!r} takes image tensors [{', '.join(map(str, wanted))}], got "
            f"{shape}; {hint}build the benchmark with transforms that give this shape, for "
            f"instance backbone.transforms.train and backbone.transforms.eval on PIL images"
        )

    def train(self, mode: bool = True) -> FrozenBackbone:
        """Stay in evaluation mode: dropout and running statistics must not move."""
        return super().train(False)

    def _pass(self, x: Tensor) -> Any:
        if self.precision == "float32":
            return self.module(x)
        with torch.autocast(x.device.type, getattr(torch, self.precision)):
            z = self.module(x)
        return z.float() if isinstance(z, Tensor) else z

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, d] of a batch of transformed images."""
        self.check(x)
        self.images_passed += len(x)
        z = self._pass(x)
        if not isinstance(z, Tensor) or z.dim() != 2 or len(z) != len(x):
            shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise BackboneError(
                f"backbone {self.name!r} must map a batch of {len(x)} images to features "
                f"[{len(x)}, d], got {shape}; remove its classifier or pool its tokens first"
            )
        return z


def _stated_input(module: nn.Module) -> tuple[int, tuple[int, int] | None] | None:
    """Return the channels and pixels (None: any) that timm's patch embedding takes."""
    vit = getattr(module, "vit", module)  # with adapters in it
    patches: Any = getattr(vit, "patch_embed", None)
    channels = getattr(getattr(patches, "proj", None), "in_channels", None)
    # a forward of one's own may do anything to the images first
    if channels is None or not type(vit).forward.__module__.startswith("timm."):
        return None
    return channels, patches.img_size if getattr(patches, "strict_img_size", False) else None
