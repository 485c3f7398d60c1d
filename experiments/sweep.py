"""Many runs of one command: ``-m``, one after the other or through a launcher of Hydra's.

``python -m experiments.run -m method=tosca,simplecil seed=1993,1994 [hydra/launcher=joblib|ray]``

A run is the same whoever starts it: it goes to its own folder under ``results_root``, a
finished one is skipped and an interrupted one goes on. So a sweep whose worker died is begun
again here, and any sweep by giving the command again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from experiments.config import compose, to_settings
from tosca_avalanche.errors import ToscaError

TRIES = 3
RAY = "hydra.launcher.ray.init"


def is_sweep(arguments: list[str]) -> bool:
    """Tell whether the command line asks for several runs."""
    return bool({"-m", "--multirun"} & set(arguments))


def planned(arguments: list[str]) -> list[dict[str, Any]]:
    """Return the settings of every run of a sweep, all keys checked before one starts.

    :raises ValueError: an unknown method, stream or key.
    """
    own = [a for a in arguments if not a.startswith(("-", "hydra", "+hydra", "++hydra"))]
    parsed = OverridesParser.create().parse_overrides(own)
    [jobs] = BasicSweeper.split_arguments(parsed, None)
    return [to_settings(compose(list(job))) for job in jobs]


def launcher_settings(arguments: list[str]) -> list[str]:
    """Return what the chosen launcher needs beside what the command line says.

    Ray starts without its dashboard; to a cluster that exists nothing may be said about its
    memory, which the launcher plugin does by default. Behind ``ray://`` stands a process of
    the cluster's that has to find this package before any run starts.

    :raises ToscaError: the launcher isn't installed, with the extra that brings it.
    """
    values = dict(a.lstrip("+").partition("=")[::2] for a in arguments)
    name = values.get("hydra/launcher")
    if name in ("joblib", "ray"):
        try:
            __import__(f"hydra_plugins.hydra_{name}_launcher")
        except ImportError as error:
            raise ToscaError(
                f"hydra/launcher={name} is not installed: pip install 'tosca_avalanche[{name}]'"
            ) from error
    if name != "ray":
        return []
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = values.get(f"{RAY}.address") or os.environ.get("RAY_ADDRESS")
    if address in (None, "local", "null"):
        wanted = {"include_dashboard": "false"}
    else:
        wanted = {"object_store_memory": "null"}
        if address.startswith("ray://"):
            wanted["runtime_env.env_vars.PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    return [f"+{RAY}.{k}={v}" for k, v in wanted.items() if f"{RAY}.{k}" not in values]


def sweep(run: Callable[[], None]) -> None:
    """Do the sweep of ``sys.argv``; begin again where the process of a run was killed.

    :param run: Hydra's main function.
    """
    arguments = sys.argv[1:]
    jobs = planned(arguments)
    print(f"{len(jobs)} runs, into {jobs[0]['results_root']}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tosca-sweep-") as notes:
        sys.argv = [sys.argv[0], *arguments, *launcher_settings(arguments)]
        if not any("hydra.sweep.dir=" in a for a in arguments):
            sys.argv.append(f"hydra.sweep.dir={notes}")  # Hydra's own notes, no results
        for attempt in range(1, TRIES + 1):
            try:
                return run()
            except BrokenExecutor as error:
                if attempt == TRIES:
                    raise ToscaError(
                        f"a worker died in each of {TRIES} tries ({error}); is memory short? Give "
                        f"fewer jobs at once, as in hydra.launcher.n_jobs=1"
                    ) from error
                print(f"a worker died; what is not finished starts again ({attempt})", flush=True)
