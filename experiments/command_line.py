"""What every command does with an error of the user's making, and with Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException

from tosca_avalanche.errors import ToscaError


@contextmanager
def as_command(interrupted: str) -> Iterator[None]:
    """End with one line and exit status 1, not with a traceback.

    :param interrupted: what to say after Ctrl-C: how to go on.
    :raises SystemExit: after an error that a user can mend, or Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(f"interrupted; {interrupted}")
    except (ToscaError, ValueError, HydraException, OSError) as error:
        sys.exit(f"error: {error}")
