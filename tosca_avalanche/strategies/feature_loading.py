"""How a strategy gets its batches: stored features where that is safe, images elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from avalanche.benchmarks.utils.data_loader import collate_from_data_or_kwargs
from torch import Tensor
from torch.utils.data import DataLoader

from tosca_avalanche.backbones import FrozenBackbone
from tosca_avalanche.benchmarks.experience import classes_of
from tosca_avalanche.errors import PIXELS, FeatureError, StoreError
from tosca_avalanche.features import (
    EpochOrder,
    FeatureData,
    FeatureLoader,
    SeededViews,
    feature_batches,
)
from tosca_avalanche.learner.recipe import refuse_bad_values
from tosca_avalanche.seeding import derive_seed, generator
from tosca_avalanche.strategies.cached import FeatureCache

TRAINED_HERE = "its backbone was trained here, and that image is finite: lower the learning rate"


class FeatureLoading:
    """The data side of :class:`FrozenBackboneStrategy`, in front of an Avalanche template.

    Expects ``cache``, ``train_views``, ``seed``, ``task`` and the template's own
    attributes. All orders and views come from private generators of (seed, task, epoch).
    """

    clock: Any
    experience: Any
    is_training: bool
    cache: FeatureCache | None
    train_views: int | str
    seed: int
    task: int
    last_step = ""
    """Where the last step of training was."""
    _on_features = False

    def place(self, in_step: bool = True) -> str:
        """Say where training or evaluation is.

        :param in_step: name epoch and batch too; outside a step there is none.
        """
        number = getattr(self.experience, "current_experience", self.task)
        if not self.is_training:
            return f"test experience {number}"
        step = f"epoch {self.clock.train_exp_epochs}, batch {self.clock.train_epoch_iterations}"
        return f"experience {number}" + (f", {step}" if in_step else "")

    @property
    def views_now(self) -> int | str:
        """Views that the experience in training is learned from."""
        return self.train_views

    def train_dataset_adaptation(self, **kwargs: Any) -> None:
        """Choose the view that training sees."""
        super().train_dataset_adaptation(**kwargs)
        if self.views_now == 0:
            self.adapted_dataset = self.experience.dataset.eval()

    def make_train_dataloader(
        self, num_workers: int = 0, shuffle: bool = True, drop_last: bool = False, **kwargs: Any
    ) -> None:
        """Make the loader of an epoch: every image once, in a seeded order."""
        data = self.adapted_dataset
        self._order = EpochOrder(len(data), self.seed, self.task, shuffle)
        views = self._training_views(num_workers)
        self._on_features = views is not None
        if views is not None:
            self.dataloader = FeatureLoader(views, self.train_mb_size, self._order, drop_last)
            return
        if self.views_now != 0:
            data = SeededViews(data, derive_seed(self.seed, "views", self.task))
        self._views = data
        options: dict[str, Any] = {"num_workers": num_workers, "drop_last": drop_last}
        data = self.image_data(data, num_workers, training=True)
        collate_from_data_or_kwargs(
            data if hasattr(data, "collate_fn") else self.adapted_dataset, options
        )
        self.dataloader = DataLoader(
            data,
            batch_size=self.train_mb_size,
            sampler=self._order,
            generator=generator(self.seed, "workers"),
            **options,
        )

    def image_data(self, data: Any, num_workers: int, training: bool) -> Any:
        """Return the data set that images are loaded from; a method may add to its items."""
        return data

    def _training_views(self, num_workers: int) -> list[FeatureData] | None:
        """Return the stored views to train on, or None to pass images in each epoch."""
        if self.cache is None or self.views_now == "fresh":
            return None
        wanted = [None] if self.views_now == 0 else list(range(int(self.views_now)))
        views = []
        for view in wanted:
            data = self.features(self.adapted_dataset, view=view, num_workers=num_workers)
            if data is None:
                return None
            views.append(data)
        return views

    def features(
        self,
        dataset: Any,
        *,
        view: int | None = None,
        num_workers: int = 0,
        extractors: Sequence[FrozenBackbone] | None = None,
    ) -> FeatureData | None:
        """Return a data set's features from the store, or None where they can't be cached.

        :param extractors: whose features, side by side; all of the net's by default.
        """
        if self.cache is None:
            return None
        extractors = list(extractors or self.model.extractors)
        with self._placed(extractors):
            return self.cache.get(
                extractors,
                dataset,
                view=view,
                batch_size=self.eval_mb_size,
                num_workers=num_workers,
            )

    def feature_batches(
        self, dataset: Any, extractors: Sequence[FrozenBackbone] | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (features [B, D], labels [B]) of a data set, from the store where there is one.

        :param extractors: whose features, side by side; all of the net's by default.
        """
        extractors = list(extractors or self.model.extractors)
        data = self.features(dataset, extractors=extractors)
        if data is None:
            with self._placed(extractors):
                yield from feature_batches(extractors, dataset, batch_size=self.eval_mb_size)
            return
        for z, y, *_ in FeatureLoader([data], self.eval_mb_size):
            yield z.to(self.device), y

    @contextmanager
    def _placed(self, extractors: Sequence[FrozenBackbone]) -> Iterator[None]:
        """Give errors of extraction their place, and the cause where training is the cause."""
        try:
            yield
        except StoreError as error:
            raise StoreError(f"{self.place(in_step=False)}: {error}") from error
        except FeatureError as error:
            place, advice = self.place(in_step=False), error.advice
            if advice == PIXELS and self._trained_here(extractors):
                place = self.last_step if self.is_training and self.last_step else place
                advice = TRAINED_HERE
            raise FeatureError(f"{place}: {error.fact}", advice) from error

    def _trained_here(self, extractors: Sequence[FrozenBackbone]) -> bool:
        return any(one is not self.model.backbone for one in extractors)

    def _before_training_epoch(self, **kwargs: Any) -> None:
        epoch = self.clock.train_exp_epochs
        self._order.epoch = epoch
        if not self._on_features and isinstance(self._views, SeededViews):
            self._views.view = epoch if self.views_now == "fresh" else epoch % self.views_now
        super()._before_training_epoch(**kwargs)

    def make_eval_dataloader(self, num_workers: int = 0, **kwargs: Any) -> None:
        """Make the loader of an evaluation: the images in their order."""
        classes_of(self.experience)  # refuses labels that are no numbers
        stored = self.eval_features(num_workers)
        self._on_features = stored is not None
        if stored is not None:
            self.dataloader = FeatureLoader([stored], self.eval_mb_size)
            return
        options: dict[str, Any] = {"num_workers": num_workers}
        data = self.image_data(self.adapted_dataset, num_workers, training=False)
        collate_from_data_or_kwargs(data, options)
        self.dataloader = DataLoader(
            data,
            batch_size=self.eval_mb_size,
            generator=generator(self.seed, "eval"),
            **options,
        )

    def eval_features(self, num_workers: int) -> FeatureData | None:
        """Return the features that an evaluation works on; None for one that needs images."""
        return self.features(self.adapted_dataset, num_workers=num_workers)

    def _train_cleanup(self) -> None:
        super()._train_cleanup()  # type: ignore[misc]
        self._views = self._order = None  # or the task's images would stay in memory

    def _save_train_state(self) -> dict[str, Any]:
        return {**super()._save_train_state(), "on_features": self._on_features}

    def _load_train_state(self, prev_state: dict[str, Any]) -> None:
        super()._load_train_state(prev_state)
        self._on_features = prev_state["on_features"]

    def _unpack_minibatch(self) -> None:
        super()._unpack_minibatch()  # type: ignore[misc]
        if not self._on_features:
            self.model.backbone.check(self.mb_x)

    def batch_features(self) -> Tensor:
        """Return the features [B, D] of the batch: ``mb_x`` itself where the store gave it."""
        if self._on_features:  # they were looked at when they were made
            return self.mb_x
        z = self.model.features(self.mb_x)
        if torch.isfinite(z).all():  # the images are looked at only where something is wrong
            return z
        trained = self._trained_here(self.model.extractors) and torch.isfinite(self.mb_x).all()
        advice = TRAINED_HERE if trained else PIXELS
        return refuse_bad_values(z, "a feature", self.place(), advice)
