"""Views of an image: the one that evaluation sees, and seeded random augmentations."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, cast

from torch.utils.data import Dataset

from tosca_avalanche.seeding import derive_seed, seeded_globals


class SeededViews(Dataset):
    """A data set whose random transforms draw from a seed of their own for each image.

    Image i of view v always looks the same, whatever was drawn before it, however many
    workers load it, and after a restart.

    :param dataset: any map-style data set; its random transforms may use torch's,
        numpy's or Python's global generator.
    :param seed: seed of all views.
    :param view: number of the view, for instance the epoch.
    :param images: a number for each image, where its position should not decide.
    """

    def __init__(
        self, dataset: Dataset, seed: int, view: int = 0, images: Sequence[int] | None = None
    ) -> None:
        self.dataset, self.seed, self.view, self.images = dataset, seed, view, images

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    def __getitem__(self, index: int) -> Any:
        image = index if self.images is None else self.images[index]
        with seeded_globals(derive_seed(self.seed, "view", self.view, image)):
            return self.dataset[index]
