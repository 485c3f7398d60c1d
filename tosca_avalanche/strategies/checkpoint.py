"""What Avalanche's checkpoints keep of a strategy: all but the frozen backbone and the data."""

from __future__ import annotations

import copy
from typing import Any

import dill

from tosca_avalanche.errors import TrainingError
from tosca_avalanche.modules.incremental import IncrementalNet


class Checkpointed:
    """Lets ``avalanche.checkpointing`` save and load a strategy on a frozen backbone.

    ``save_checkpoint(strategy, file)`` writes the plugins with what they counted, the
    evaluator, the clock, the settings and what the net learned (:meth:`IncrementalNet.state`);
    not the backbone's weights, of which name and fingerprint are kept, nor what is made
    anew for each experience (optimiser, scheduler, loaders) or belongs to the machine
    (device, feature store, images). Left as it is, Avalanche fails here on current torch,
    where dill can't pickle optimisers, and would write the whole transformer.

    ``maybe_load_checkpoint(strategy, file)`` wants a new strategy with the same settings
    on the same backbone, and returns it ready for the next experience. As ever with
    Avalanche, its plugins are then those of the file: look them up in
    ``strategy.plugins``. The file is a pickle: load none that you don't trust.

    Only dill, which those two use, sees this; ``copy`` and ``pickle`` work as before.
    """

    not_kept: tuple[str, ...] = (
        *("_model", "_net_settings", "device", "cache", "optimizer", "optimizer_factory"),
        *("scheduler", "scheduler_factory", "experience", "current_eval_stream", "_eval_streams"),
        *("adapted_dataset", "dataloader", "mbatch", "mb_output", "loss", "_order", "_views"),
        *("_on_features", "optimized_param_id"),
    )
    """Attributes that a checkpoint leaves to the strategy it is loaded into."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dill.register(cls)(_pickle)

    @property
    def model(self) -> IncrementalNet:
        """The net; what a checkpoint brought goes into it when it is first asked for."""
        if "_model" not in self.__dict__:
            raise TrainingError(
                "this comes from a checkpoint, which has no backbone: make a new strategy and "
                "pass it to avalanche.checkpointing.maybe_load_checkpoint"
            )
        saved = self.__dict__.get("_saved_net")
        if saved is not None:
            _check(saved["settings"], self._described())
            self._model.restore(saved["tensors"], saved["rest"])
            del self._saved_net
        return self._model

    @model.setter
    def model(self, net: IncrementalNet) -> None:
        if "_net_settings" not in self.__dict__:
            # taken before anything is learned: these are what the constructor was given
            own = {k: v for k, v in vars(net).items() if not k.startswith("_")}
            self._net_settings = {k: copy.copy(v) for k, v in own.items() if _is_plain(v)}
        self._model = net

    def _described(self) -> dict[str, Any]:
        backbone = self._model.backbone
        named = {"strategy": type(self).__name__, "backbone": backbone.name}
        return {**named, "fingerprint": backbone.fingerprint, **self._net_settings}


def _pickle(pickler: Any, strategy: Checkpointed) -> None:
    tensors, rest = strategy.model.state()
    kept = {k: v for k, v in vars(strategy).items() if k not in strategy.not_kept}
    kept["_saved_net"] = {"settings": strategy._described(), "tensors": tensors, "rest": rest}
    pickler.save_reduce(_unpickle, (kept,), obj=strategy)


def _unpickle(kept: dict[str, Any]) -> Checkpointed:
    # Avalanche wants the attributes alone; the class, of a user's script perhaps, stays outside
    found = Checkpointed()
    found.__dict__.update(kept)
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(v) for v in value)
    return value is None or isinstance(value, (int, float, str))


def _check(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    # a key that only one of them has came or went with a version of this package
    differing = [
        f"{k} is {found[k]!r} there, {wanted[k]!r} here"
        for k in wanted
        if k in found and found[k] != wanted[k]
    ]
    if differing:
        raise TrainingError(
            f"the checkpoint is one of another strategy: {'; '.join(differing[:5])}. Make the "
            f"strategy with the same settings on the same backbone and load it again"
        )
