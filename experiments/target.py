"""Any Avalanche benchmark as a stream, by its Python path."""

from __future__ import annotations

import inspect
from typing import Any

import hydra
from avalanche.benchmarks import CLScenario

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.benchmarks import classes_of, register_stream
from tosca_avalanche.errors import StreamError
from tosca_avalanche.seeding import seeded_globals


@register_stream("target")
def target(
    transforms: Transforms | None = None,
    *,
    _target_: str,
    args: dict[str, Any] = {},  # noqa: B006 (never changed; the configuration reads it)
    class_order_seed: int | None = None,
) -> CLScenario:
    """Return what a function of Avalanche's or of yours makes: ``stream._target_=package.name``.

    ``transforms``, or ``train_transform`` and ``eval_transform``, are the backbone's, and
    ``seed`` is the seed of the class order, where the function has such a keyword and
    ``args`` does not say otherwise. The function's own draws do not touch the global state.

    :param _target_: Python path of a function or class that returns a benchmark with
        ``train_stream`` and ``test_stream``.
    :param args: its keywords: ``+stream.args.n_experiences=5``.
    :raises StreamError: no such function, wrong keywords, no benchmark.
    """
    try:
        function: Any = hydra.utils.get_object(_target_)
    except Exception as error:  # whatever its import raises
        raise StreamError(f"stream._target_={_target_} can't be found: {error}") from error
    what = f"stream._target_={_target_} with args {dict(args)}"
    try:
        benchmark = function
        if not hasattr(function, "train_stream") or isinstance(function, type):
            known = inspect.signature(function).parameters
            given: dict[str, Any] = {}
            if transforms is not None:
                given["transforms"] = transforms
                given |= {"train_transform": transforms.train, "eval_transform": transforms.eval}
            if class_order_seed is not None:
                given |= {"seed": class_order_seed, "class_order_seed": class_order_seed}
            settings = {k: v for k, v in given.items() if k in known} | dict(args)
            with seeded_globals(0):
                benchmark = function(**settings)
        experiences, tests = list(benchmark.train_stream), len(benchmark.test_stream)
    except Exception as error:
        raise StreamError(
            f"{what} gives no benchmark with train and test streams: "
            f"{type(error).__name__}: {error}"
        ) from error
    if tests != len(experiences):
        raise StreamError(
            f"{what} has {len(experiences)} training and {tests} test experiences: runs test on "
            f"the test experience of every task so far, so there must be one for each"
        )
    classes = [classes_of(e) for e in experiences]
    if not hasattr(benchmark, "class_names"):
        benchmark.class_names = [str(c) for c in sorted({c for own in classes for c in own})]
    if not hasattr(benchmark, "class_order"):
        benchmark.class_order = None
    if not hasattr(benchmark, "task_sizes"):
        benchmark.task_sizes = [len(own) for own in classes]
    return benchmark


def with_target(overrides: list[str]) -> list[str]:
    """Choose this stream where ``stream._target_=`` is given and no stream is."""
    keys = [o.partition("=")[0].lstrip("+") for o in overrides]
    if "stream._target_" in keys and "stream" not in keys:
        return [*overrides, "stream=target"]
    return overrides
