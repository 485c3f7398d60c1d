"""Find, build and check a backbone."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import load_file
from timm.data import resolve_model_data_config
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.backbones.transforms import (
    PRESETS,
    Transforms,
    paper_preset,
    plain_preset,
    timm_preset,
)
from tosca_avalanche.errors import BackboneError
from tosca_avalanche.seeding import seeded_globals

EMBEDDED = "tiny_vit_64"
_TINY_ARCHITECTURE: dict[str, Any] = {
    "img_size": 64,
    "patch_size": 8,
    "embed_dim": 192,
    "depth": 6,
    "num_heads": 3,
    "mlp_ratio": 4,
    "num_classes": 0,
    "class_token": True,
    "global_pool": "token",
}
_TINY_DATA_CONFIG = {
    "input_size": (3, 64, 64),
    "interpolation": "bicubic",
    "mean": (0.5, 0.5, 0.5),
    "std": (0.5, 0.5, 0.5),
    "crop_pct": 1.0,
    "crop_mode": "squash",
}


def load_backbone(
    name: str | nn.Module,
    *,
    weights: str | Path | None = None,
    transform: str | Transforms | None = None,
    embed_dim: int | None = None,
    precision: str = "float32",
) -> FrozenBackbone:
    """Return a frozen backbone with ``.embed_dim``, ``.transforms`` and ``.fingerprint``.

    :param name: ``"tiny_vit_64"`` (embedded, no network), a timm name WITH its tag such as
        ``"vit_base_patch16_224.augreg_in21k"`` (the paper's), or any module that maps a
        batch of images to [B, d]. A bare timm name is refused: it means different weights
        in different timm versions.
    :param weights: default: the embedded file, or timm's download. A path to a
        ``.safetensors`` or ``.pth`` state dict; or ``"random"``, the only way to get
        untrained weights (always the same ones).
    :param transform: ``"timm"`` (default: the model's own normalisation and crop),
        ``"paper"`` (the authors': pixels in [0, 1]), or a :class:`Transforms`.
    :param embed_dim: feature width, only for a module that doesn't tell it.
    :param precision: "float32", or "bfloat16" / "float16" for autocast.
    :raises BackboneError: a name without its tag, weights that can't be fetched, a file
        that is missing, not a state dict, or has other shapes.

    >>> backbone = load_backbone("tiny_vit_64")
    >>> backbone.embed_dim, backbone(torch.zeros(2, 3, 64, 64)).shape
    (192, torch.Size([2, 192]))
    """
    if isinstance(name, FrozenBackbone):
        if weights is not None or transform is not None:
            raise BackboneError(
                "this backbone is loaded already; give weights= or transform= first"
            )
        return name
    if isinstance(name, nn.Module):
        if weights is not None:
            raise BackboneError(
                "weights= goes with a name; load your module's weights before passing it"
            )
        chosen = _transforms(transform, None) if transform is not None else plain_preset()
        return FrozenBackbone(
            name, name=type(name).__name__, transforms=chosen, embed_dim=embed_dim
        )
    if name == EMBEDDED:
        return _embedded(weights, transform, precision)
    return _from_timm(name, weights, transform, precision)


def _embedded(
    weights: str | Path | None, transform: str | Transforms | None, precision: str
) -> FrozenBackbone:
    with seeded_globals(0):
        model = VisionTransformer(**_TINY_ARCHITECTURE)
    if weights is None:
        with resources.as_file(
            resources.files(__package__) / "assets" / f"{EMBEDDED}.safetensors"
        ) as f:
            _load_into(model, load_file(f), str(f))
    elif weights != "random":
        _load_into(model, read_state_dict(weights), str(weights))
    return FrozenBackbone(
        model,
        name=_label(EMBEDDED, weights),
        architecture=f"{EMBEDDED} {_TINY_ARCHITECTURE}",
        transforms=_transforms(transform, _TINY_DATA_CONFIG),
        precision=precision,
    )


def _from_timm(
    name: str, weights: str | Path | None, transform: str | Transforms | None, precision: str
) -> FrozenBackbone:
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        near = ", ".join(timm.list_models(f"{architecture[:8]}*")[:5]) or "timm.list_models()"
        raise BackboneError(
            f"backbone {name!r} is neither {EMBEDDED!r} nor a model of timm {timm.__version__}; "
            f"see {near}"
        )
    tags = [n.partition(".")[2] for n in timm.list_models(f"{architecture}.*", pretrained=True)]
    if tags and tag not in tags:
        what = f"has no weights with the tag {tag!r}" if tag else "was named without its tag"
        choices = ", ".join(f"{architecture}.{t}" for t in tags)
        raise BackboneError(
            f"backbone {architecture!r} {what}: a bare name means different weights in different "
            f"timm versions. Choose one of: {choices}"
        )
    try:
        with seeded_globals(0):
            model = timm.create_model(name, pretrained=weights is None, num_classes=0)
    except Exception as error:
        raise BackboneError(
            f"the weights of {name!r} could not be fetched ({type(error).__name__}: {error}). "
            f"Fetch them on a machine with a network and pass weights=FILE.safetensors, or pass "
            f"weights='random' if untrained weights are really wanted"
        ) from error
    if weights is not None and weights != "random":
        _load_into(model, read_state_dict(weights), str(weights))
    return FrozenBackbone(
        model,
        name=_label(name, weights),
        architecture=f"timm {name}",
        transforms=_transforms(transform, resolve_model_data_config(model)),
        precision=precision,
    )


def _label(name: str, weights: str | Path | None) -> str:
    if weights is None:
        return name
    return f"{name} ({'random' if weights == 'random' else Path(weights).name})"


def _transforms(
    transform: str | Transforms | None, data_config: dict[str, Any] | None
) -> Transforms:
    if isinstance(transform, Transforms):
        return transform
    if transform == "paper":
        return paper_preset(data_config["input_size"][-1] if data_config else 224)
    if transform in (None, "timm") and data_config is not None:
        return timm_preset(data_config)
    raise BackboneError(
        f'transform={transform!r} is unknown here; choose one of {PRESETS} ("timm" only for named '
        f"models) or pass a Transforms object"
    )


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict from .safetensors, or from .pth/.pt/.bin without unpickling objects."""
    path = Path(path)
    if not path.is_file():
        raise BackboneError(f"weights file {path} does not exist; give the path of a state dict")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise BackboneError(
            f"weights file {path} could not be read as a state dict ({type(error).__name__}: "
            f"{error}); save one with safetensors.torch.save_file(model.state_dict(), path)"
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise BackboneError(f"weights file {path} holds no state dict of tensors")
    return state


def _load_into(model: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Load strictly; only a classifier that the model does not have may be left over."""
    own = model.state_dict()
    missing = [k for k in own if k not in state]
    extra = [k for k in state if k not in own and not k.startswith(("head.", "fc.", "classifier."))]
    other = [
        f"{k} {tuple(state[k].shape)} instead of {tuple(own[k].shape)}"
        for k in own
        if k in state and state[k].shape != own[k].shape
    ]
    if missing or extra or other:
        raise BackboneError(
            f"{source} does not fit {type(model).__name__}: "
            f"{len(missing)} tensors missing {missing[:3]}, {len(extra)} unknown {extra[:3]}, "
            f"{len(other)} with other shapes {other[:3]}. Nothing was loaded; give weights of the "
            f"same architecture in timm's state-dict keys"
        )
    model.load_state_dict({k: state[k] for k in own})
