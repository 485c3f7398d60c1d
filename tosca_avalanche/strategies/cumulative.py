"""What makes a method joint: training anew on all data seen so far."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor

from tosca_avalanche.benchmarks.experience import classes_of, whole_stream
from tosca_avalanche.errors import TrainingError
from tosca_avalanche.strategies.checkpoint import Checkpointed


class Cumulative:
    """Mixed in front of a strategy: each experience trains a new net on all data so far.

    To the method below, everything seen is one task. Keeps the experiences (their data are
    the replay that no other strategy here has). A strategy that was restored takes those
    before its own time from the experience's stream.
    """

    model: Any
    experience: Any
    not_kept = (*Checkpointed.not_kept, "_new", "seen", "_taken")

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self._new = self._copy_of(self.model)
        self.seen: list[Any] | None = None
        """Experiences trained on; None before the first, when a restored net may know others."""
        self._taken: list[Any] = []

    def _copy_of(self, net: Any) -> Any:
        return copy.deepcopy(net, {id(net.backbone): net.backbone})

    def _before_training_exp(self, **kwargs: Any) -> None:
        if self.seen is None:
            self.seen = self._earlier() if self.model.n_tasks else []
        self._taken = [*self.seen, self.experience]  # seen only when its training is over
        self.model, last = self._copy_of(self._new), self.model
        for counter in ("passed_before", "images_trained", "images_tested"):
            if hasattr(last, counter):
                setattr(self.model, counter, getattr(last, counter))
        whole = self._taken[0].dataset
        for experience in self._taken[1:]:
            whole = whole.concat(experience.dataset)
        self.experience = copy.copy(self.experience)
        self.experience._dataset = whole
        super()._before_training_exp(**kwargs)  # type: ignore[misc]

    def _after_training_exp(self, **kwargs: Any) -> None:
        self.seen, self._taken = self._taken, []
        super()._after_training_exp(**kwargs)  # type: ignore[misc]

    def forward(self) -> Tensor:
        """Return the method's outputs; its one module is no choice worth counting."""
        outputs: Tensor = super().forward()  # type: ignore[misc]
        self.model.last_modules = None
        return outputs

    def _earlier(self) -> list[Any]:
        """Return the experiences that a restored net was trained on."""
        here = self.experience
        earlier = [e for e in whole_stream(here) if e.current_experience < here.current_experience]
        classes = sorted({c for e in earlier for c in classes_of(e)})
        if classes != sorted(self.model.classes):
            raise TrainingError(
                f"joint training needs the data of all earlier experiences: the restored net knows "
                f"classes {sorted(self.model.classes)}, the stream before experience "
                f"{here.current_experience} has {classes}; train on the stream it came from"
            )
        return earlier
