"""``python -m tosca_avalanche.features ls | verify | prune | extract``: the feature store."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

import torch

from tosca_avalanche.errors import StoreError, ToscaError
from tosca_avalanche.features.store import DTYPES, open_shard, spaces


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code of ``verify`` is 1 where something is damaged."""
    parser = argparse.ArgumentParser(prog="python -m tosca_avalanche.features")
    parser.add_argument("--root", help="the store; default TOSCA_CACHE/features or the platform's")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("ls", help="what is stored")
    commands.add_parser("verify", help="check every shard against its checksum")
    prune = commands.add_parser("prune", help="take damaged shards and old spaces away")
    prune.add_argument("--older-than", type=float, metavar="DAYS", help="not used for so long")
    prune.add_argument("--all", action="store_true", help="everything")
    _extract_options(commands.add_parser("extract", help="features of all images below a folder"))
    options = parser.parse_args(arguments)
    try:
        return _extract(options) if options.command == "extract" else _look_after(options)
    except (ToscaError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _look_after(options: argparse.Namespace) -> int:
    found = spaces(options.root)
    if options.command == "ls":
        print(f"{'backbone':32} {'view':10} {'dtype':8} {'images':>9} {'MB':>8} {'days':>6}  space")
        for s in found:
            print(
                f"{s['backbone'][:32]:32} {s['view']:10} {s['dtype']:8} {s['images']:9,} "
                f"{s['bytes'] / 1e6:8.1f} {s['days']:6.1f}  {s['folder'].name}"
            )
        return 0
    damaged, unread, whole = [], 0, 0
    for path in [shard for s in found for shard in s["shards"]]:
        try:
            shard = open_shard(path)
        except FileNotFoundError:  # merged meanwhile
            continue
        except StoreError as error:
            print(f"error: {error}", file=sys.stderr)
            unread += 1
            continue
        whole += shard is not None
        damaged += [path] * (shard is None)
    if options.command == "verify":
        for path in damaged:
            print(f"damaged: {path}")
        print(f"{whole} shards are whole, {len(damaged)} damaged, {unread} can't be read")
        return 1 if damaged or unread else 0
    left_over = [p for s in found for p in s["folder"].glob(".*.tmp") if _days(p) > 1]
    for path in (*damaged, *left_over):
        path.unlink(missing_ok=True)
        print(f"took away {path}")
    for s in found:
        if options.all or (options.older_than is not None and s["days"] > options.older_than):
            shutil.rmtree(s["folder"])
            print(f"took away {s['folder']} ({s['images']:,} images of {s['backbone']})")
    return 1 if unread else 0


def _extract_options(parser: argparse.ArgumentParser) -> None:
    world = os.environ  # torchrun's, one process per device
    parser.add_argument("--backbone", required=True, help="name for load_backbone")
    parser.add_argument("--weights", help="file of its weights, or 'random'; default: timm's")
    parser.add_argument("--precision", default="float32", help="float32 or bfloat16")
    parser.add_argument("--data", required=True, help="folder of images, in any depth")
    parser.add_argument("--dtype", default="float32", choices=DTYPES, help="of stored features")
    parser.add_argument("--shards", type=int, default=int(world.get("WORLD_SIZE", 1)))
    parser.add_argument("--shard", type=int, default=int(world.get("RANK", 0)), help="from 0")
    parser.add_argument("--device", help="default: a GPU where there is one")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--num-workers", type=int, default=0, help="processes that decode")
    parser.add_argument("--skip-bad", action="store_true", help="leave undecodable files out")
    parser.add_argument("--ray", action="store_true", help="share the work out with Ray Data")
    parser.add_argument("--workers", type=int, help="with --ray: actors; default one per GPU/CPU")
    parser.add_argument("--address", help="with --ray: of a cluster that exists")


def _extract(options: argparse.Namespace) -> int:
    from tosca_avalanche.features.bulk import Job, extract_on_ray, extract_shard

    device = options.device
    if device is None:
        local = "cuda" if options.ray else f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        device = local if torch.cuda.is_available() else "cpu"
    backbone = {"name": options.backbone, "weights": options.weights}
    job = Job(
        {**backbone, "precision": options.precision}, options.root or "default", options.dtype,
        device, options.batch_size, options.num_workers, options.skip_bad,
    )  # fmt: skip
    start = time.monotonic()
    try:
        if options.ray:
            tally = extract_on_ray(job, options.data, options.workers, options.address)
        else:
            tally = extract_shard(job, options.data, options.shards, options.shard)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    for path in tally.bad:
        print(f"left out, can't be decoded: {path}", file=sys.stderr)
    seconds = time.monotonic() - start
    print(
        f"{tally.done:,} images are stored, {tally.passed:,} passed now, {len(tally.bad)} left "
        f"out; {seconds:.1f} s, {tally.passed / seconds:,.1f} images/s"
    )
    return 0


def _days(path: Path) -> float:
    return (time.time() - path.stat().st_mtime) / 86400


if __name__ == "__main__":
    sys.exit(main())
