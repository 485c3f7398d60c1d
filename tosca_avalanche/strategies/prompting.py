"""The loop of the prompt methods: images come in, each with its query from the store."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from avalanche.benchmarks.utils.data_loader import collate_from_data_or_kwargs
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import Dataset

from tosca_avalanche.modules.incremental import pad_outputs
from tosca_avalanche.strategies.base import FrozenBackboneStrategy


class PromptStrategy(FrozenBackboneStrategy):
    """Trains prompts and a linear head; the query of an image is a frozen feature.

    Where features can be stored, an image passes through the plain transformer once, ever;
    the prompted pass is needed in every epoch and every evaluation. Adam, constant rate,
    no decay, a new optimiser for each experience.

    :param lr: learning rate.
    :param clip: largest norm of the gradient of all that learns; None leaves it alone.
    """

    def __init__(
        self, *, model: nn.Module, lr: float = 1e-3, clip: float | None = None, **common: Any
    ) -> None:
        self.lr, self.clip = lr, clip
        self.mb_query: Tensor | None = None
        super().__init__(model=model, **common)
        self._chosen: Tensor | None = None

    def _training_views(self, num_workers: int) -> None:
        return None

    def eval_features(self, num_workers: int) -> None:
        """Return None: a prompted pass needs images."""
        return

    def image_data(self, data: Any, num_workers: int, training: bool) -> Any:
        """Put each image's query behind its other fields, where the store knows it."""
        if training and self.views_now != 0:
            return data  # random views: the query is that of the view
        known = self.features(data, num_workers=num_workers)
        return data if known is None else WithQueries(data, known.z)

    def _unpack_minibatch(self) -> None:
        self.mb_query = None
        if isinstance(self.mbatch, QueriedBatch):
            self.mb_query = self.mbatch.query.to(self.device)
        super()._unpack_minibatch()

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """Make room for the classes, and the optimiser."""
        self.add_task(warn=True)
        super().check_model_and_optimizer(**kwargs)

    def default_optimizer(self, parameters: list[nn.Parameter]) -> Optimizer:
        """Return Adam."""
        return Adam(parameters, self.lr)

    def default_scheduler(self, optimizer: Optimizer, epochs: int) -> LRScheduler:
        """Return a constant rate."""
        return LambdaLR(optimizer, lambda epoch: 1.0)

    def forward(self) -> Tensor:
        """Return outputs [B, width], wide enough for every label of the batch."""
        outputs = self.model(self.mb_x, self.task_ids(), query=self.mb_query)
        return pad_outputs(outputs, int(self.mb_y.max()) + 1)

    def criterion(self) -> Tensor:
        """Return cross-entropy, and in training the method's own term."""
        loss: Tensor = super().criterion()
        return loss + self.model.penalty() if self.is_training else loss

    def optimizer_step(self) -> None:
        """Clip where it is wanted, then step."""
        if self.clip is not None:
            learning = [p for group in self.optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(learning, self.clip)
        super().optimizer_step()

    def _before_eval(self, **kwargs: Any) -> None:
        self._chosen = torch.zeros(self.model.pool_size, dtype=torch.int64)
        super()._before_eval(**kwargs)

    def _after_eval_iteration(self, **kwargs: Any) -> None:
        chosen = self.model.last_prompts
        if chosen is not None and self.model.n_tasks and self._chosen is not None:
            self._chosen += torch.bincount(chosen.flatten().cpu(), minlength=self.model.pool_size)
        super()._after_eval_iteration(**kwargs)

    def _after_eval(self, **kwargs: Any) -> None:
        super()._after_eval(**kwargs)
        counts, self._chosen = self._chosen, None
        if counts is None or counts.sum() < len(counts):
            return
        used = int((counts > 0).sum())
        if used < len(counts) / 4:
            warnings.warn(
                f"of {len(counts)} prompts only {used} were ever chosen in this evaluation: the "
                f"others are dead weight; look at the keys' learning rate and pull, or take a "
                f"smaller pool",
                stacklevel=2,
            )


class QueriedBatch(list):  # type: ignore[type-arg]
    """A batch as Avalanche knows it, with the queries of its images beside it."""

    query: Tensor


class WithQueries(Dataset[Any]):
    """A data set whose batches carry a query for each image.

    :param data: the data set; its own way of collating stays.
    :param queries: [N, d].
    """

    def __init__(self, data: Any, queries: Tensor) -> None:
        self.data, self.queries = data, queries
        options: dict[str, Any] = {}
        collate_from_data_or_kwargs(data, options)
        self._inner: Callable[[list[Any]], Any] = options["collate_fn"]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> tuple[Any, Tensor]:
        return self.data[i], self.queries[i]

    def collate_fn(self, items: list[tuple[Any, Tensor]]) -> QueriedBatch:
        """Collate the items, and stack their queries."""
        batch = QueriedBatch(self._inner([item for item, _ in items]))
        batch.query = torch.stack([query for _, query in items])
        return batch
