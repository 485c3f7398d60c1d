"""Joint: TOSCA's head and module on all data seen so far. Its ceiling."""

from __future__ import annotations

from tosca_avalanche.strategies.cumulative import Cumulative
from tosca_avalanche.strategies.registry import register
from tosca_avalanche.strategies.tosca import TOSCAStrategy


@register("joint")
class JointStrategy(Cumulative, TOSCAStrategy):
    """TOSCA's head and one module of its kind, trained anew on all data seen so far.

    What one module can do when nothing is hidden from it. The frozen features bound it, and
    so do 20 epochs of the authors' settings: statistics of second order (SLDA, RanPAC) can
    lie above. The ceiling for all methods is :class:`JointFinetuneStrategy`.
    """

    fixed_keys = ("selection", "projection", "ridge_weight")  # of one module there is no choice
