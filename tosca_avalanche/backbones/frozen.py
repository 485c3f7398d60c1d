"""The frozen wrapper around a backbone."""

from __future__ import annotations

import hashlib
import json

import torch
from torch import Tensor, nn

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.errors import BackboneError


class FrozenBackbone(nn.Module):
    """A backbone that maps a batch of images to features [B, d] and never changes.

    Always in evaluation mode, whatever ``train()`` says; no parameter takes a gradient.

    :param module: any module from a batch to [B, d]. It is frozen in place, not copied.
    :param name: what results call it; ``architecture`` tells two shapes of it apart.
    :param transforms: image transforms that fit the weights.
    :param embed_dim: d; by default ``module.embed_dim`` or ``module.num_features``, and
        where neither is there, known after the first batch (:meth:`probe`).
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        name: str,
        transforms: Transforms,
        architecture: str | None = None,
        embed_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.module = module.requires_grad_(False).eval()
        self.name, self.transforms = name, transforms
        self.architecture = architecture or f"{type(module).__qualname__}\n{module!r}"
        known = (
            embed_dim or getattr(module, "embed_dim", None) or getattr(module, "num_features", None)
        )
        self._embed_dim: int | None = int(known) if isinstance(known, int) else None
        self._fingerprint: str | None = None
        self.eval()

    @property
    def embed_dim(self) -> int:
        """Width d of the features."""
        if self._embed_dim is None:
            raise BackboneError(
                f"the feature width of backbone {self.name!r} is not known yet: pass embed_dim=, "
                f"or run probe() on a batch of images first"
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

    def probe(self, x: Tensor) -> int:
        """Learn the feature width from one batch of images, where it is not known."""
        if self._embed_dim is None:
            self._embed_dim = int(self(x).shape[1])
        return self._embed_dim

    def train(self, mode: bool = True) -> FrozenBackbone:
        """Stay in evaluation mode: dropout and running statistics must not move."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, d] of a batch of transformed images."""
        z = self.module(x)
        if not isinstance(z, Tensor) or z.dim() != 2 or len(z) != len(x):
            shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise BackboneError(
                f"backbone {self.name!r} must map a batch of {len(x)} images to features "
                f"[{len(x)}, d], got {shape}; remove its classifier or pool its tokens first"
            )
        return z
