"""A progress bar per experience."""

from __future__ import annotations

from typing import Any

from avalanche.core import SupervisedPlugin
from tqdm.auto import tqdm


class ProgressPlugin(SupervisedPlugin):
    """One tqdm bar per trained experience, with loss, training accuracy, rate and ETA.

    Silent where standard error is no terminal, so that logs stay short.

    :param disable: None (default) shows the bar on a terminal only; False always; True never.
    """

    def __init__(self, disable: bool | None = None) -> None:
        super().__init__()
        self.disable = disable
        self._bar: Any = None

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Open the bar."""
        per_epoch = len(strategy.dataloader)
        self._bar = tqdm(
            total=per_epoch * strategy.train_epochs,
            desc=f"task {strategy.experience.current_experience}",
            unit="batch",
            disable=self.disable,
            leave=False,
        )
        self._right = self._seen = 0

    def after_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
        """Move the bar by one batch."""
        if self._bar is None:
            return
        self._bar.update(1)
        if not self._bar.disable:
            self._right += int((strategy.mb_output.argmax(dim=1) == strategy.mb_y).sum())
            self._seen += len(strategy.mb_y)
            self._bar.set_postfix(
                epoch=strategy.clock.train_exp_epochs + 1,
                loss=f"{float(strategy.loss):.3f}",
                acc=f"{100 * self._right / self._seen:.1f}%",
                refresh=False,
            )

    def after_training_epoch(self, strategy: Any, **kwargs: Any) -> None:
        """Start the epoch's accuracy anew."""
        self._right = self._seen = 0

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None
