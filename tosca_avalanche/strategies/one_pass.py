"""The loop of methods that only add up statistics of frozen features."""

from __future__ import annotations

from typing import Any

from torch import nn

from tosca_avalanche.strategies.base import FrozenBackboneStrategy


class OnePassStrategy(FrozenBackboneStrategy):
    """One pass over each experience; the net's ``learn(z, y)`` sees every image once.

    The pass runs through Avalanche's training loop, one epoch, so that plugins and loggers
    see it; there is no backward and no update, and the outputs and loss in it are those of
    the statistics so far.
    """

    fixed_keys = ("train_epochs", "train_views")
    # settings of training that a method without training has no use for
    meaningless: tuple[str, ...] = ("optimizer", "scheduler", "train_views")

    def __init__(self, *, model: nn.Module, train_mb_size: int = 64, **common: Any) -> None:
        name = type(self).__name__
        for key in self.meaningless:
            if common.get(key):
                raise ValueError(f"{name} trains nothing: {key}= has no meaning here")
        if common.pop("train_epochs", 1) != 1:
            raise ValueError(f"{name} learns in one pass: train_epochs is 1")
        super().__init__(model=model, train_mb_size=train_mb_size, train_epochs=1, **common)

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """Make room for the classes of the experience."""
        self.add_task(warn=self.model.adapting)
        super().check_model_and_optimizer(**kwargs)

    def _after_training_exp(self, **kwargs: Any) -> None:
        self.model.end_task()
        super()._after_training_exp(**kwargs)

    def training_epoch(self, **kwargs: Any) -> None:
        """Add up the features of every image once."""
        for batch in self.dataloader:
            if self._stop_training:
                break
            self.mbatch = batch
            self._unpack_minibatch()
            self._before_training_iteration(**kwargs)
            self._before_forward(**kwargs)
            z = self.batch_features()
            self.model.learn(z, self.mb_y)
            self.mb_output = self.model.classify(z)
            self._after_forward(**kwargs)
            self.loss = self.criterion()
            self._after_training_iteration(**kwargs)
