"""From images of any kind to features, each through the backbone once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tosca_avalanche.backbones import FrozenBackbone
from tosca_avalanche.errors import InputError
from tosca_avalanche.features import FeatureStore, eval_space, feature_batches, stored_features
from tosca_avalanche.learner.inputs import Pictures


def features_of(
    backbone: FrozenBackbone, sources: Sequence[Any], store: FeatureStore | None, batch_size: int
) -> Tensor:
    """Return features [N, d] of images under the backbone's evaluation transform.

    :param sources: images as :func:`tosca_avalanche.learner.inputs.sources_of` gives them.
    :param store: where features are kept; None keeps none. A random transform keeps none either.
    """
    pictures = Pictures(sources, backbone.transforms.eval)
    if not len(pictures):
        return torch.zeros(0, backbone.embed_dim)
    try:
        space = None if store is None else eval_space(backbone, store)
        if space is None:
            return torch.cat(
                [z.cpu() for z, _ in feature_batches(backbone, pictures, batch_size=batch_size)]
            )
        keys = [pictures.key(i) for i in range(len(pictures))]
        return stored_features(backbone, pictures, keys, space, batch_size=batch_size)
    except RuntimeError as error:
        if "equal size" not in str(error):  # torch's words where images can't be stacked
            raise
        raise InputError(
            f"images of different sizes come out of the transform of backbone {backbone.name!r} "
            f"with different sizes; give images of one size, or a backbone whose transform resizes"
        ) from error
