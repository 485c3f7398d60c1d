"""SimpleCIL: nearest class mean by cosine on frozen features (IJCV 2024)."""

from __future__ import annotations

from typing import Any

from torch import nn

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks.experience import classes_of
from tosca_avalanche.modules import ClassMeans, PrototypeNet
from tosca_avalanche.strategies.base import FrozenBackboneStrategy
from tosca_avalanche.strategies.registry import register


@register("simplecil")
class SimpleCILStrategy(FrozenBackboneStrategy):
    """Class prototypes from one pass over each experience; no parameter is trained.

    A prototype is the mean of the raw features of a class's training images (evaluation
    transform); the score is the cosine. The final model does not depend on the class
    order or on the split into experiences. The pass runs through Avalanche's training
    loop, one epoch, so that plugins and loggers see it; there is no backward and no
    update, and the outputs and loss in it are those of the prototypes so far.

    :param model: the backbone: from ``load_backbone``, or any module from images to [B, d].
    """

    def __init__(self, *, model: nn.Module, train_mb_size: int = 64, **common: Any) -> None:
        for name in ("optimizer", "scheduler", "train_views"):
            if common.get(name):
                raise ValueError(f"SimpleCILStrategy trains nothing: {name}= has no meaning here")
        if common.pop("train_epochs", 1) != 1:
            raise ValueError(
                "SimpleCILStrategy makes its prototypes in one pass: train_epochs is 1"
            )
        super().__init__(
            model=PrototypeNet(load_backbone(model)),
            train_mb_size=train_mb_size,
            train_epochs=1,
            **common,
        )

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """Make room for the classes of the experience."""
        self.model.backbone.probe(self.experience.dataset.eval()[0][0])
        self.model.add_task(classes_of(self.experience))
        super().check_model_and_optimizer(**kwargs)

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
            means = ClassMeans(z.shape[1])
            means.update(z, self.mb_y)
            self.model.learn(means)
            self.mb_output = self.model.classify(z)
            self._after_forward(**kwargs)
            self.loss = self.criterion()
            self._after_training_iteration(**kwargs)
