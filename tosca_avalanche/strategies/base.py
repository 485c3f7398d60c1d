"""What every strategy on a frozen backbone shares."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from avalanche.training.plugins.evaluation import default_evaluator
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tosca_avalanche.benchmarks.experience import classes_of
from tosca_avalanche.errors import PIXELS
from tosca_avalanche.features import FeatureStore
from tosca_avalanche.learner.recipe import (
    cosine_schedule,
    refuse_bad_loss,
    refuse_bad_values,
    refuse_bad_weights,
    warn_of_one_class,
    warn_of_one_task,
)
from tosca_avalanche.modules.incremental import IncrementalNet, pad_outputs
from tosca_avalanche.strategies.cached import FeatureCache
from tosca_avalanche.strategies.checkpoint import Checkpointed
from tosca_avalanche.strategies.feature_loading import FeatureLoading

OptimizerLike = Optimizer | Callable[[Iterable[nn.Parameter]], Optimizer] | None
SchedulerFactory = Callable[[Optimizer, int], LRScheduler] | None


class FrozenBackboneStrategy(Checkpointed, FeatureLoading, SupervisedTemplate):
    """Avalanche's supervised loop around an :class:`IncrementalNet`.

    A subclass builds its net and passes it on; it may override ``default_optimizer``.

    Kept from Avalanche: all hooks, plugins, loggers, metrics, ``eval_every``, both
    benchmark families. Different from ``Naive``, on purpose:

    - a new optimiser for each experience, over trainable parameters only, and a new
      scheduler with it, stepped once per epoch;
    - every image of an experience is seen once per epoch, whatever its task label
      (Avalanche's task-balanced loader repeats images of small groups);
    - shuffling and augmentation draw from private generators of (seed, task, epoch), so
      that evaluations in between, workers and a restart change nothing;
    - outputs are padded with columns that never win, so that labels not seen yet can be
      evaluated; evaluation never grows the model.

    :param model: the net.
    :param optimizer: a factory ``params -> Optimizer``; or an optimiser, whose class and
        settings are used anew for each experience; or None for the method's default.
    :param scheduler: a factory ``(optimizer, epochs) -> LRScheduler``, stepped per epoch;
        None for the method's default.
    :param train_views: 0 trains on the evaluation view of each image (the backbone is
        frozen, so one pass per image serves all epochs); V > 0 stores V random views of the
        benchmark's training transform per image, seeded by the image, and cycles through
        them by epoch; "fresh" passes a new random view of every image in every epoch, as
        the authors do.
    :param store: where features are kept: a :class:`FeatureStore` or its folder; "default"
        is ``$TOSCA_CACHE/features`` or the platform's cache folder; None is memory only.
    :param cache: False passes every image through the backbone whenever it is needed. With
        the cache ``strategy.mb_x`` holds features [B, d] instead of images; hooks, metrics
        and results are the same.
    :param seed: seed of shuffling, augmentation and initial values.
    """

    fixed_keys: tuple[str, ...] = ()
    """Keywords that have one meaningful value here: configurations leave them out."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__init__ = _model_by_position(cls.__init__)  # type: ignore[method-assign]

    def __init__(
        self,
        *,
        model: IncrementalNet,
        optimizer: OptimizerLike = None,
        scheduler: SchedulerFactory = None,
        criterion: Any = None,
        train_mb_size: int = 48,
        train_epochs: int = 1,
        eval_mb_size: int | None = 64,
        device: str | torch.device = "cpu",
        plugins: Any = None,
        evaluator: Any = default_evaluator,
        eval_every: int = -1,
        peval_mode: str = "epoch",
        train_views: int | str = 0,
        store: FeatureStore | str | Path | None = "default",
        cache: bool = True,
        seed: int = 0,
    ) -> None:
        if train_views != "fresh" and (not isinstance(train_views, int) or train_views < 0):
            raise ValueError(
                f"train_views={train_views!r} is unknown; choose 0 (the evaluation view), a number "
                f"of random views to store, or 'fresh'"
            )
        if train_views not in (0, "fresh") and not cache:
            raise ValueError(
                f"train_views={train_views} stores views and so needs cache=True; with cache=False "
                f"choose 0 or 'fresh'"
            )
        super().__init__(
            model=model,
            optimizer=None,
            criterion=nn.CrossEntropyLoss() if criterion is None else criterion,
            train_mb_size=train_mb_size,
            train_epochs=train_epochs,
            eval_mb_size=eval_mb_size,
            device=device,
            plugins=plugins,
            evaluator=evaluator,
            eval_every=eval_every,
            peval_mode=peval_mode,
        )
        self.model.to(self.device)
        self.optimizer_factory = _as_factory(optimizer)
        self.scheduler_factory = scheduler
        self.scheduler: LRScheduler | None = None
        self.train_views, self.seed = train_views, seed
        if not isinstance(store, FeatureStore):
            store = FeatureStore(store)
        self.cache = FeatureCache(store) if cache else None
        self._on_features = self._mid_task = False
        self.task = 0
        """Index of the experience in training, counting from the net's first."""

    def _before_training_exp(self, **kwargs: Any) -> None:
        # counted by the net, not by Avalanche's clock: a resumed run starts a new clock
        self.task, self.last_step = self.model.n_tasks, ""
        self._mid_task = True
        super()._before_training_exp(**kwargs)

    def _after_training_exp(self, **kwargs: Any) -> None:
        self._mid_task = False
        super()._after_training_exp(**kwargs)

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """Make the optimiser and scheduler of the experience; the model has grown already."""
        self.make_optimizer(**kwargs)

    def add_task(self, warn: bool) -> None:
        """Make room for the experience's classes in the net.

        :param warn: say where a single class will give no gradient.
        """
        self.model.backbone.probe(self.experience.dataset.eval()[0][0])
        labels = classes_of(self.experience)
        if warn:
            warn_of_one_class(labels, self.task)
        self.model.add_task(labels)

    def model_adaptation(self, model: nn.Module | None = None) -> nn.Module:
        """Leave the model as it is: only training grows it."""
        return self.model if model is None else model

    def make_optimizer(self, **kwargs: Any) -> None:
        """Make a new optimiser over the trainable parameters, and its scheduler."""
        parameters = self.model.trainable()
        self.optimizer = self.scheduler = None
        if not parameters:
            return
        factory = self.optimizer_factory or self.default_optimizer
        self.optimizer = factory(parameters)
        schedule = self.scheduler_factory or self.default_scheduler
        self.scheduler = schedule(self.optimizer, self.train_epochs)

    def default_optimizer(self, parameters: list[nn.Parameter]) -> Optimizer:
        """Return the method's own optimiser."""
        raise NotImplementedError

    def default_scheduler(self, optimizer: Optimizer, epochs: int) -> LRScheduler:
        """Return the method's own scheduler: cosine per epoch down to 1e-8."""
        return cosine_schedule(optimizer, epochs)

    def _after_training_epoch(self, **kwargs: Any) -> None:
        if self.optimizer is not None:  # no loss comes after the last step
            groups = self.optimizer.param_groups
            refuse_bad_weights((p for group in groups for p in group["params"]), self.last_step)
        if self.scheduler is not None:
            self.scheduler.step()
        super()._after_training_epoch(**kwargs)

    def forward(self) -> Tensor:
        """Return outputs [B, width], wide enough for every label of the batch."""
        outputs = self.model.classify(self.batch_features(), self.task_ids())
        return pad_outputs(outputs, int(self.mb_y.max()) + 1)

    def task_ids(self) -> Tensor | None:
        """Return the true task of each image of the batch, for methods that ask for it."""
        return None

    def backward(self) -> None:
        """Refuse a loss that is not finite before it spoils the weights."""
        self.last_step = self.place()
        refuse_bad_loss(self.loss, self.last_step)
        super().backward()

    def _before_eval(self, **kwargs: Any) -> None:
        self._answers: list[tuple[Tensor, Tensor]] = []
        super()._before_eval(**kwargs)

    def _after_eval_forward(self, **kwargs: Any) -> None:
        advice = f"{PIXELS}, or lower the learning rate"
        refuse_bad_values(self.mb_output, "an output", self.place(), advice)
        self._answers.append((self.mb_output.argmax(dim=1).cpu(), self.mb_y.cpu()))
        super()._after_eval_forward(**kwargs)

    def _after_eval(self, **kwargs: Any) -> None:
        super()._after_eval(**kwargs)
        answers, self._answers = self._answers, []
        # amid a task its statistics and prototypes are not there yet
        if answers and self.model.n_tasks > 1 and not self._mid_task:
            given, right = (torch.cat(part) for part in zip(*answers, strict=True))
            warn_of_one_task(given.tolist(), right.tolist(), self.model.task_classes)


def _as_factory(optimizer: OptimizerLike) -> Callable[[Any], Optimizer] | None:
    if isinstance(optimizer, Optimizer):
        # the given one holds the parameters of the frozen backbone: only its settings are of use
        return functools.partial(type(optimizer), **optimizer.defaults)
    return optimizer


def _model_by_position(init: Callable[..., None]) -> Callable[..., None]:
    """Let the model be given by position, where Avalanche wants keywords only."""

    @functools.wraps(init)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) == 1 and "model" not in kwargs:
            args, kwargs = (), {"model": args[0], **kwargs}
        init(self, *args, **kwargs)

    return wrapped
