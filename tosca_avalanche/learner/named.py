"""The backbone that a model folder names."""

from __future__ import annotations

from pathlib import Path

from tosca_avalanche.backbones import FrozenBackbone, load_backbone
from tosca_avalanche.errors import ModelError


def backbone_of(
    described: dict[str, str], weights: str | Path | None, folder: Path
) -> FrozenBackbone:
    """Load the backbone that a manifest describes.

    :param described: its name, transform and precision.
    :param weights: file of its weights, where it had one.
    :param folder: the model's, for the error.
    :raises ModelError: it can't be loaded by name.
    """
    name, _, source = described["name"].partition(" (")
    if source == "random)":
        weights = "random"
    elif source and weights is None:
        raise ModelError(
            f"{folder} was learned on {name!r} with weights from {source.rstrip(')')!r}; pass "
            f"weights=FILE, or the backbone"
        )
    try:
        return load_backbone(
            name,
            weights=weights,
            transform=described["transform"],
            precision=described["precision"],
        )
    except ValueError as error:
        raise ModelError(
            f"{folder} was learned on backbone {described['name']!r} with transform "
            f"{described['transform']!r}, which can't be loaded by name ({error}); pass backbone="
        ) from error
