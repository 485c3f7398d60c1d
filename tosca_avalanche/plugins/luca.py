"""The plugin that makes a training loop TOSCA's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from avalanche.core import SupervisedPlugin
from torch import Tensor

from tosca_avalanche.benchmarks.experience import classes_of
from tosca_avalanche.features import feature_batches
from tosca_avalanche.learner.recipe import Recipe, warn_of_one_class
from tosca_avalanche.modules import ToscaNet


class LuCAPlugin(SupervisedPlugin):
    """Adds an l1-regularised LuCA module before each experience, and finishes it afterwards.

    Before an experience: a new module and new head rows in the strategy's
    :class:`~tosca_avalanche.modules.ToscaNet`. In training: the l1 term. After it: the
    module is frozen and each class of the experience gets as its head row the mean of
    L(z) over its training images (evaluation transform, current module).

    Source: TOSCA (TMLR 2026), training, and the authors' code; the parts are those of
    :class:`~tosca_avalanche.learner.Recipe`. Works in any ``SupervisedTemplate`` whose
    model is a ``ToscaNet``; :class:`TOSCAStrategy` is the one with the authors' optimiser.

    :param l1: lambda of the l1 term, see ``Recipe``.
    :param sparsity: "l1" or "proximal", see ``Recipe``.
    :param eval_mb_size: images per batch of the pass that makes the prototypes.
    """

    def __init__(self, *, l1: float = 5e-4, sparsity: str = "l1", eval_mb_size: int = 64) -> None:
        super().__init__()
        self.recipe, self.eval_mb_size = Recipe(l1=l1, sparsity=sparsity), eval_mb_size

    def after_train_dataset_adaptation(self, strategy: Any, **kwargs: Any) -> None:
        """Add the module: this hook precedes the optimiser of the experience."""
        net = _tosca_net(strategy)
        labels = classes_of(strategy.experience)
        if net.n_tasks == 0 or net.ce_scope == "task":
            warn_of_one_class(labels, net.n_tasks)
        net.backbone.probe(strategy.experience.dataset.eval()[0][0])
        self.recipe.begin(net, labels, lambda: self._batches(strategy))

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Add the l1 term to the loss."""
        strategy.loss = self.recipe.penalised(_tosca_net(strategy), strategy.loss)

    def after_update(self, strategy: Any, **kwargs: Any) -> None:
        """Take the proximal step of the l1 term."""
        self.recipe.after_step(_tosca_net(strategy), strategy.optimizer.param_groups[0]["lr"])

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Store the prototypes and freeze the module."""
        place = getattr(strategy, "last_step", "")  # Naive has none
        self.recipe.finish(_tosca_net(strategy), lambda: self._batches(strategy), place)

    def _batches(self, strategy: Any) -> Iterable[Sequence[Tensor]]:
        """Return batches of the experience's images in the evaluation view, as features."""
        data = strategy.experience.dataset.eval()
        if hasattr(strategy, "feature_batches"):  # our strategies have a store, Naive has none
            return strategy.feature_batches(data)
        return feature_batches(strategy.model.backbone, data, batch_size=self.eval_mb_size)


def _tosca_net(strategy: Any) -> ToscaNet:
    if not isinstance(strategy.model, ToscaNet):
        raise TypeError(
            f"LuCAPlugin needs a strategy whose model is a ToscaNet, got "
            f"{type(strategy.model).__name__}; wrap the backbone: ToscaNet(load_backbone(...))"
        )
    return strategy.model
