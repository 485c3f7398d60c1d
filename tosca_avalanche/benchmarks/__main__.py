"""``python -m tosca_avalanche.benchmarks check NAME [ROOT] [KEY=VALUE ...]``: count a stream."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import warnings
from typing import Any

from tosca_avalanche.benchmarks.experience import classes_of
from tosca_avalanche.benchmarks.published import PUBLISHED, TOTALS
from tosca_avalanche.benchmarks.registry import find_stream, stream_names
from tosca_avalanche.errors import ToscaError


def check(name: str, root: str | None, settings: dict[str, Any]) -> bool:
    """Print tasks, classes and images of a stream; return False where not as published."""
    function = find_stream(name)
    keys = inspect.signature(function).parameters
    unknown = [k for k in settings if k not in keys or k in ("root", "transforms")]
    if unknown:
        known = ", ".join(k for k in keys if k not in ("root", "transforms"))
        raise ValueError(f"stream {name} has no key {unknown[0]!r}; it has {known}")
    if ("root" in keys) != (root is not None):
        needs = "needs a folder: check NAME ROOT" if "root" in keys else "takes no folder"
        raise ValueError(f"stream {name} {needs}")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        benchmark = function(**({} if root is None else {"root": root}), **settings)
    names = getattr(benchmark, "task_names", None)
    print("task  classes  train   test")
    counts = []
    for t, (train, test) in enumerate(
        zip(benchmark.train_stream, benchmark.test_stream, strict=True)
    ):
        counts.append((len(train.dataset), len(test.dataset)))
        own = f"  {names[t]}" if names else ""
        print(f"{t:4}  {len(classes_of(train)):7}  {counts[t][0]:5}  {counts[t][1]:5}{own}")
    classes, train, test = len(benchmark.class_names), *(sum(c) for c in zip(*counts, strict=True))
    print(
        f"{name}: {len(counts)} tasks, {classes} classes, {train} training and {test} test images"
    )
    split = getattr(benchmark, "split", "folders")
    if split not in ("folders", "official"):
        print(f"a seeded split of ours: {split}")
    for warning in said:
        if issubclass(warning.category, UserWarning):
            print(f"note: {warning.message}")
    return _as_published(name, classes, train, test)


def _as_published(name: str, classes: int, train: int, test: int) -> bool:
    known = PUBLISHED.get(name)
    if known is None:
        print("no counts are published for this stream")
        return True
    if (classes, train, test) == (known.classes, known.train, known.test):
        print("as published")
        return True
    split = f"{known.train:,} / {known.test:,}" if known.train else "no split"
    total = TOTALS.get(name)
    if classes == known.classes and train + test == total:
        print(f"all {total:,} images are there; the published split is {split}, this is another")
        return True
    print(f"NOT as published: {known.classes} classes, {split}; {known.hint}")
    return False


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code: 1 where counts differ, 2 where nothing counts."""
    parser = argparse.ArgumentParser(
        prog="python -m tosca_avalanche.benchmarks",
        description="Count a stream and compare it with what is published.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("check", help="count tasks, classes and images")
    one.add_argument("name", help=", ".join(stream_names()))
    one.add_argument("root", nargs="?", help="the folder or tar, for streams that have one")
    one.add_argument("settings", nargs="*", help="keys of the stream, as increment=10")
    parsed = parser.parse_args(arguments)
    pairs, root = list(parsed.settings), parsed.root
    if root is not None and "=" in root:
        pairs, root = [root, *pairs], None
    try:
        settings = {}
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals:
                raise ValueError(f"{pair!r} is no KEY=VALUE")
            try:
                settings[key] = json.loads(value)
            except json.JSONDecodeError:
                settings[key] = value
        return 0 if check(parsed.name, root, settings) else 1
    except (ToscaError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
