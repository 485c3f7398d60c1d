"""Test experiences mixed into one, for protocols whose answer depends on the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from avalanche.benchmarks.scenarios.dataset_scenario import DatasetExperience
from avalanche.benchmarks.scenarios.generic_scenario import EagerCLStream

from tosca_avalanche.seeding import derive_seed

ORDERS = ("class-sorted", "shuffled")


def mixed_experience(experiences: Sequence[Any], order: str, seed: int = 0) -> Any:
    """Return one test experience that holds the images of several, in a given order.

    "class-sorted" is how the authors' code reads its test set: class after class, in
    batches that cross task borders only once per task. "shuffled" is what a user's
    batches look like.

    The result's ``sample_tasks`` [N] says which experience each image came from.

    :param experiences: test experiences whose data have targets.
    :param order: "class-sorted" or "shuffled".
    :param seed: seed of the shuffled order.
    """
    if order not in ORDERS:
        raise ValueError(f"order={order!r} is unknown; choose one of {ORDERS}")
    whole = experiences[0].dataset.eval()
    for experience in experiences[1:]:
        whole = whole.concat(experience.dataset.eval())
    labels = np.concatenate([_targets(e) for e in experiences])
    tasks = np.concatenate(
        [np.full(len(e.dataset), e.current_experience, dtype=np.int64) for e in experiences]
    )
    if order == "class-sorted":
        index = np.lexsort((labels, tasks))
    else:
        index = np.random.RandomState(derive_seed(seed, "mixed") % 2**32).permutation(len(labels))
    mixed = DatasetExperience(dataset=whole.subset(index.tolist()))
    EagerCLStream(experiences[0].origin_stream.name, [mixed])
    mixed.sample_tasks = tasks[index]
    return mixed


def _targets(experience: Any) -> np.ndarray:
    return np.asarray([int(t) for t in experience.dataset.targets], dtype=np.int64)
