"""The preset of TOSCA recommended here: modules of their own task, a second-order router."""

from __future__ import annotations

from typing import Any

from torch import nn

from tosca_avalanche.strategies.registry import register
from tosca_avalanche.strategies.tosca import TOSCAStrategy


@register("tosca_routed")
class RoutedTOSCAStrategy(TOSCAStrategy):
    """TOSCA whose images find their module by statistics of the frozen features.

    Four settings differ from :class:`TOSCAStrategy`; docs/selection.md says what each of
    them gives, measured on five streams:

    - ``selection="gaussian-ridge"``: class Gaussians and a ridge regression on the raw
      features, both from sums that only add up, score the classes; the module of the best
      one answers within its task. The paper's rule is the lowest entropy.
    - ``ce_scope="task"``: a module learns to tell the classes of its task apart, no others.
    - ``scale_init=16``: at the authors' 1 the softmax of cosines is too flat to train on.
    - ``rows="trained"``: the head rows stay as trained; class means in their place cost the
      module several points within its own task.

    Per image, without replay and task labels; no image is kept, only sums.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        ce_scope: str = "task",
        scale_init: float = 16.0,
        rows: str = "trained",
        selection: str = "gaussian-ridge",
        **common: Any,
    ) -> None:
        super().__init__(
            model=model,
            ce_scope=ce_scope,
            scale_init=scale_init,
            rows=rows,
            selection=selection,
            **common,
        )
