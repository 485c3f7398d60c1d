"""Named transform presets: what happens to an image before the backbone sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from timm.data import create_transform
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode

PRESETS = ("timm", "paper")


@dataclass(frozen=True)
class Transforms:
    """A pair of image transforms and the parameters that made them.

    :param train: random augmentation, PIL image or array to tensor [3, H, W].
    :param eval: deterministic, likewise.
    :param preset: its name.
    :param parameters: plain values that tell two transforms apart; part of the fingerprint.
    """

    train: Callable[[Any], torch.Tensor]
    eval: Callable[[Any], torch.Tensor]
    preset: str
    parameters: dict[str, Any] = field(default_factory=dict)


class ToRGB:
    """Turn a PIL image of any mode, or a uint8 array [H, W] or [H, W, 3], into RGB."""

    def __call__(self, image: Any) -> Image.Image:
        """Return the RGB image."""
        if isinstance(image, np.ndarray):
            image = Image.fromarray(image)
        if not isinstance(image, Image.Image):
            raise TypeError(f"expected a PIL image or a uint8 array, got {type(image).__name__}")
        return image.convert("RGB")

    def __repr__(self) -> str:
        return "ToRGB()"


def timm_preset(data_config: dict[str, Any]) -> Transforms:
    """The model's own normalisation and crop, as its timm configuration states them.

    Train: timm's random resized crop and horizontal flip, no further augmentation.

    :param data_config: from ``timm.data.resolve_model_data_config``.
    """
    keys = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")
    own = {k: data_config[k] for k in keys}
    evaluation = create_transform(**own, is_training=False)
    train_keys = {k: own[k] for k in ("input_size", "interpolation", "mean", "std")}
    train = create_transform(**train_keys, is_training=True, color_jitter=0.0, auto_augment=None)
    parameters = {k: list(v) if isinstance(v, tuple) else v for k, v in own.items()}
    return Transforms(
        T.Compose([ToRGB(), train]),
        T.Compose([ToRGB(), evaluation]),
        "timm",
        {"preset": "timm", **parameters},
    )


def paper_preset(size: int = 224) -> Transforms:
    """The transforms of TOSCA's authors: pixels in [0, 1], no mean and std.

    Train RandomResizedCrop(size, scale (0.05, 1), ratio (3/4, 4/3), bilinear) and flip;
    test Resize(size * 256 / 224, bicubic) and CenterCrop(size).
    """
    train = T.Compose(
        [
            ToRGB(),
            T.RandomResizedCrop(size, (0.05, 1.0), (3 / 4, 4 / 3), InterpolationMode.BILINEAR),
            T.RandomHorizontalFlip(),
            T.ToTensor(),
        ]
    )
    resized = round(size * 256 / 224)
    evaluation = T.Compose(
        [
            ToRGB(),
            T.Resize(resized, InterpolationMode.BICUBIC),
            T.CenterCrop(size),
            T.ToTensor(),
        ]
    )
    return Transforms(
        train, evaluation, "paper", {"preset": "paper", "size": size, "resize": resized}
    )


def plain_preset() -> Transforms:
    """Pixels in [0, 1] at their own size: the default for a module that says nothing of itself."""
    plain = T.Compose([ToRGB(), T.ToTensor()])
    return Transforms(plain, plain, "plain", {"preset": "plain"})
