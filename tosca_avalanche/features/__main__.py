"""``python -m tosca_avalanche.features ls | verify | prune``: look after the feature store."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from tosca_avalanche.features.store import open_shard, spaces


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
    options = parser.parse_args(arguments)
    found = spaces(options.root)
    if options.command == "ls":
        print(f"{'backbone':32} {'view':10} {'dtype':8} {'images':>9} {'MB':>8} {'days':>6}  space")
        for s in found:
            print(
                f"{s['backbone'][:32]:32} {s['view']:10} {s['dtype']:8} {s['images']:9,} "
                f"{s['bytes'] / 1e6:8.1f} {s['days']:6.1f}  {s['folder'].name}"
            )
        return 0
    damaged = [shard for s in found for shard in s["shards"] if open_shard(shard) is None]
    if options.command == "verify":
        for shard in damaged:
            print(f"damaged: {shard}")
        whole = sum(len(s["shards"]) for s in found) - len(damaged)
        print(f"{whole} shards are whole, {len(damaged)} damaged")
        return 1 if damaged else 0
    left_over = [p for s in found for p in s["folder"].glob(".*.tmp") if _days(p) > 1]
    for path in (*damaged, *left_over):
        path.unlink(missing_ok=True)
        print(f"took away {path}")
    for s in found:
        if options.all or (options.older_than is not None and s["days"] > options.older_than):
            shutil.rmtree(s["folder"])
            print(f"took away {s['folder']} ({s['images']:,} images of {s['backbone']})")
    return 0


def _days(path: Path) -> float:
    return (time.time() - path.stat().st_mtime) / 86400


if __name__ == "__main__":
    sys.exit(main())
