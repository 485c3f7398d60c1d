"""Pass images through a frozen backbone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.errors import TrainingError


def feature_batches(
    backbone: FrozenBackbone,
    dataset: Dataset,
    *,
    batch_size: int = 64,
    num_workers: int = 0,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (features [B, d], labels [B]) over a data set, in its order.

    :param dataset: items are (image tensor, label, ...); further fields are ignored.
    :raises TrainingError: a feature that is not finite, with the position of its image.
    """
    # a private generator: each DataLoader iterator draws a seed, from the global one by default
    loader = DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=num_workers,
        generator=torch.Generator().manual_seed(0),
    )
    for i, batch in enumerate(loader):
        z = backbone(batch[0].to(backbone.device))
        if not torch.isfinite(z).all():
            bad = int((~torch.isfinite(z).all(dim=1)).nonzero()[0])
            raise TrainingError(
                f"backbone {backbone.name!r} gave a feature that is not finite for image "
                f"{i * batch_size + bad} of the data set; look at that image's pixels"
            )
        yield z, torch.as_tensor(batch[1])
