"""A stream that kills its process once, as a machine that runs out of memory does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from avalanche.benchmarks import CLScenario

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.benchmarks import digits


def dying_digits(transforms: Transforms, class_order_seed: int) -> CLScenario:
    """Return the digits; before, die where $TOSCA_TEST_MARK names a file that isn't there yet."""
    mark = os.environ.get("TOSCA_TEST_MARK")
    if mark and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return digits(transforms, classes_per_task=5, class_order_seed=class_order_seed)
