"""The loop of methods whose transformer learns: images come in, not stored features."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from tosca_avalanche.modules.incremental import pad_outputs
from tosca_avalanche.strategies.base import FrozenBackboneStrategy


class Adapting:
    """Mixed in front of a strategy: SGD on images while ``adapting``, features afterwards.

    Expects a net with ``adapting``, ``task_outputs(images)`` and ``finish_adapting()``.

    :param lr: learning rate of SGD, with ``momentum`` and ``weight_decay`` over all that
        learns; cosine per epoch to 0, new for each experience.
    """

    model: Any

    def __init__(
        self,
        *,
        lr: float = 0.01,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        train_mb_size: int = 48,
        **common: Any,
    ) -> None:
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        super().__init__(train_mb_size=train_mb_size, **common)

    @property
    def adapting(self) -> bool:
        """True while the transformer learns."""
        return bool(self.model.adapting)

    def features(self, dataset: Any, **kwargs: Any) -> Any:
        """Return stored features, once the transformer is what it will stay."""
        return None if self.adapting else super().features(dataset, **kwargs)  # type: ignore[misc]

    def default_optimizer(self, parameters: list[nn.Parameter]) -> Optimizer:
        """Return the authors' SGD."""
        return SGD(parameters, self.lr, self.momentum, weight_decay=self.weight_decay)

    def default_scheduler(self, optimizer: Optimizer, epochs: int) -> LRScheduler:
        """Return the authors' cosine to 0."""
        return CosineAnnealingLR(optimizer, T_max=max(1, epochs))

    def forward(self) -> Tensor:
        """Return the outputs that training works on while adapting, the method's own afterwards."""
        if not self.adapting or not self.model.n_tasks:
            return super().forward()  # type: ignore[misc]
        return pad_outputs(self.model.task_outputs(self.mb_x), int(self.mb_y.max()) + 1)  # type: ignore[attr-defined]


class AdaptingStrategy(Adapting, FrozenBackboneStrategy):
    """Every experience: the transformer learns on its images, then is frozen and looked through.

    After the last epoch the net takes features of the experience's images, by the
    evaluation transform, from those of its extractors that it names (``statistics_from``).
    """

    def _training_views(self, num_workers: int) -> None:
        return None

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """Make room for the classes, and the optimiser."""
        self.add_task(warn=True)
        super().check_model_and_optimizer(**kwargs)

    def _after_training_exp(self, **kwargs: Any) -> None:
        self.model.finish_adapting()
        extractors = self.model.statistics_from
        if extractors:
            for z, y in self.feature_batches(self.experience.dataset.eval(), extractors):
                self.model.learn(z, y.to(z.device))
        self.model.end_task()
        super()._after_training_exp(**kwargs)
