"""Joint finetuning: the whole transformer on all data seen so far. The ceiling of all."""

from __future__ import annotations

from tosca_avalanche.strategies.cumulative import Cumulative
from tosca_avalanche.strategies.finetune import FinetuneStrategy
from tosca_avalanche.strategies.registry import register


@register("joint_finetune")
class JointFinetuneStrategy(Cumulative, FinetuneStrategy):
    """The whole transformer and a linear head, trained anew on all data seen so far."""
