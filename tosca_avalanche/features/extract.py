"""Pass images through a frozen backbone, at most once each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset
from tqdm.auto import tqdm

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.errors import PIXELS, FeatureError, StoreError
from tosca_avalanche.features.identity import transform_key
from tosca_avalanche.features.store import FeatureSpace, FeatureStore

SHARD_IMAGES = 4096
SHARD_SECONDS = 30.0


def feature_batches(
    backbone: FrozenBackbone | Sequence[FrozenBackbone],
    dataset: Dataset,
    *,
    batch_size: int = 64,
    num_workers: int = 0,
    positions: Sequence[int] | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (features [B, d], labels [B]) over a data set, in its order.

    :param backbone: one, or several whose features are put side by side.
    :param dataset: items are (image tensor, label, ...); further fields are ignored.
    :param positions: only these images, in this order.
    :raises FeatureError: a feature that is not finite, with the position of its image.
    """
    backbones = [backbone] if isinstance(backbone, FrozenBackbone) else list(backbone)
    data = dataset if positions is None else Subset(dataset, list(positions))
    # a private generator: each DataLoader iterator draws a seed, from the global one by default
    loader = DataLoader(
        data,
        batch_size=batch_size,
        num_workers=num_workers,
        generator=torch.Generator().manual_seed(0),
    )
    for i, batch in enumerate(loader):
        x = batch[0].to(backbones[0].device)
        z = torch.cat([b(x) for b in backbones], dim=1)
        if not torch.isfinite(z).all():
            row = int((~torch.isfinite(z).all(dim=1)).nonzero()[0])
            bad = i * batch_size + row
            broken = not torch.isfinite(x[row]).all()
            raise FeatureError(
                f"backbone {backbones[-1].name!r} gave a feature that is not finite for image "
                f"{bad if positions is None else positions[bad]} of the data set",
                f"{PIXELS}, which are not finite themselves" if broken else PIXELS,
            )
        yield z, torch.as_tensor(batch[1])


def stored_features(
    backbone: FrozenBackbone,
    dataset: Dataset,
    keys: list[bytes],
    space: FeatureSpace,
    *,
    batch_size: int = 64,
    num_workers: int = 0,
) -> Tensor:
    """Return the features [N, d] of a data set, passing only images that the space lacks.

    Extraction shows images/s and an ETA on a terminal. It writes a shard every 4,096
    images or 30 seconds, and on an interruption, so that a restart goes on from there.

    :param keys: one key per image, from :func:`tosca_avalanche.features.image_key`.
    """
    if space.missing(keys):
        with space.extraction():
            missing = space.missing(keys)  # another process may have been at work
            if missing:
                settings = {"total": len(missing), "desc": "backbone", "unit": "image"}
                with tqdm(**settings, leave=False, disable=None) as bar:
                    pass_missing(
                        backbone, dataset, keys, missing, space, batch_size, num_workers, bar.update
                    )
    return torch.from_numpy(space.read(keys))


def pass_missing(
    backbone: FrozenBackbone,
    dataset: Dataset,
    keys: list[bytes],
    missing: list[int],
    space: FeatureSpace,
    batch_size: int,
    num_workers: int,
    advance: Callable[[int], Any],
) -> None:
    """Pass the images at the positions ``missing`` and write them into the space.

    :param advance: told how many images have passed, batch by batch.
    """
    waiting: list[np.ndarray] = []
    done, flushed, last = 0, 0, time.monotonic()

    def flush() -> None:
        nonlocal flushed, last
        if waiting:
            names = [keys[i] for i in missing[flushed:done]]
            features = np.concatenate(waiting)
            waiting.clear()
            flushed, last = done, time.monotonic()
            try:
                space.write(names, features)
            except StoreError as error:
                with np.errstate(over="ignore"):
                    narrow = features.astype(space.description["dtype"])
                large = np.flatnonzero(~np.isfinite(narrow).all(axis=1))
                if not len(large):
                    raise
                at = missing[done - len(names) + large[0]]
                raise StoreError(f"image {at} of the data set: {error}") from error

    try:
        batches = feature_batches(
            backbone, dataset, batch_size=batch_size, num_workers=num_workers, positions=missing
        )
        for z, _ in batches:
            waiting.append(z.float().cpu().numpy())
            done += len(z)
            advance(len(z))
            if done - flushed >= SHARD_IMAGES or time.monotonic() - last > SHARD_SECONDS:
                flush()
    finally:
        flush()


def eval_space(backbone: FrozenBackbone, store: FeatureStore) -> FeatureSpace | None:
    """Return the space of RGB images under the backbone's evaluation transform.

    None where that transform is random.
    """
    blank = Image.new("RGB", (8, 8))
    key, random = transform_key(backbone.transforms.eval, blank)
    if random:
        return None
    return store.space(
        backbone=backbone.name,
        fingerprint=backbone.fingerprint,
        transform=key,
        view="eval",
        dim=backbone.probe(backbone.transforms.eval(blank)),
    )
