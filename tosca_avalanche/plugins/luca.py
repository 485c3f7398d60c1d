"""The plugin that makes a training loop TOSCA's."""

from __future__ import annotations

from typing import Any

from avalanche.core import SupervisedPlugin

from tosca_avalanche.benchmarks.experience import classes_of, warn_of_one_class
from tosca_avalanche.features import feature_batches
from tosca_avalanche.modules import ClassMeans, ToscaNet

SPARSITIES = ("l1", "proximal")


class LuCAPlugin(SupervisedPlugin):
    """Adds an l1-regularised LuCA module before each experience, and finishes it afterwards.

    Before an experience: a new module and new head rows in the strategy's
    :class:`~tosca_avalanche.modules.ToscaNet`. In training: the l1 term. After it: the
    module is frozen and each class of the experience gets as its head row the mean of
    L(z) over its training images (evaluation transform, current module).

    Source: TOSCA (TMLR 2026), training, and the authors' code. Works in any
    ``SupervisedTemplate`` whose model is a ``ToscaNet``; :class:`TOSCAStrategy` is the
    one with the authors' optimiser.

    :param l1: lambda of the term lambda * sum |theta| over all parameters of the current
        module (a sum, not a mean; the head is left out).
    :param sparsity: "l1" adds the term to the loss (sub-gradient SGD as the authors do:
        small values, no exact zeros); "proximal" soft-thresholds by lr * lambda after each
        update instead, which gives exact zeros.
    :param eval_mb_size: images per batch of the pass that makes the prototypes.
    """

    def __init__(self, *, l1: float = 5e-4, sparsity: str = "l1", eval_mb_size: int = 64) -> None:
        super().__init__()
        if sparsity not in SPARSITIES:
            raise ValueError(f"LuCAPlugin: sparsity={sparsity!r}; choose one of {SPARSITIES}")
        if l1 < 0:
            raise ValueError(f"LuCAPlugin: l1 must not be negative, got {l1}")
        self.l1, self.sparsity, self.eval_mb_size = l1, sparsity, eval_mb_size

    def after_train_dataset_adaptation(self, strategy: Any, **kwargs: Any) -> None:
        """Add the module: this hook precedes the optimiser of the experience."""
        net = _tosca_net(strategy)
        labels = classes_of(strategy.experience)
        if net.n_tasks == 0 or net.ce_scope == "task":
            warn_of_one_class(labels, net.n_tasks)
        net.backbone.probe(strategy.experience.dataset.eval()[0][0])
        net.add_task(labels)
        if net.head_init == "prototype":
            net.set_prototypes(self.prototypes(strategy))

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Add the l1 term to the loss."""
        if self.sparsity == "l1" and self.l1:
            strategy.loss = strategy.loss + self.l1 * _tosca_net(strategy).bank.current.l1_norm()

    def after_update(self, strategy: Any, **kwargs: Any) -> None:
        """Take the proximal step of the l1 term."""
        if self.sparsity == "proximal" and self.l1:
            lr = strategy.optimizer.param_groups[0]["lr"]
            _tosca_net(strategy).bank.current.soft_threshold(lr * self.l1)

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Store the prototypes and freeze the module."""
        _tosca_net(strategy).finish_task(self.prototypes(strategy))

    def prototypes(self, strategy: Any) -> Any:
        """Return the mean L(z) [classes, d] of each class of the experience."""
        net = _tosca_net(strategy)
        means = ClassMeans(net.backbone.embed_dim)
        data = strategy.experience.dataset.eval()
        if hasattr(strategy, "feature_batches"):  # our strategies have a store, Naive has none
            batches = strategy.feature_batches(data)
        else:
            batches = feature_batches(net.backbone, data, batch_size=self.eval_mb_size)
        for z, y in batches:
            means.update(net.bank.current(z), y)
        return means.mean(net.task_classes[-1])


def _tosca_net(strategy: Any) -> ToscaNet:
    if not isinstance(strategy.model, ToscaNet):
        raise TypeError(
            f"LuCAPlugin needs a strategy whose model is a ToscaNet, got "
            f"{type(strategy.model).__name__}; wrap the backbone: ToscaNet(load_backbone(...))"
        )
    return strategy.model
