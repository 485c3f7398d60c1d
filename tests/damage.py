"""Ways in which a file gets damaged, and what has to come of it."""

from __future__ import annotations

import random
import resource
import time

import pytest

from tosca_avalanche.errors import ToscaError


def damaged(data: bytes, seed: int) -> bytes:
    """Return a damaged copy: cut off, bits turned over, blocks overwritten, or nothing left."""
    draws = random.Random(seed)
    out = bytearray(data)
    kind = seed % 6
    if kind == 0:
        return bytes(out[: draws.randrange(len(out))])
    if kind == 1:
        for _ in range(draws.randint(1, 3)):
            out[draws.randrange(len(out))] ^= 1 << draws.randrange(8)
    elif kind == 2:  # the head holds sizes and types
        out[draws.randrange(min(40, len(out)))] = draws.randrange(256)
    elif kind == 3:
        start = draws.randrange(len(out))
        out[start : start + 20] = draws.randbytes(20)
    elif kind == 4:
        return draws.randbytes(len(out)) if seed % 4 else b""
    else:
        start = draws.randrange(len(out))
        del out[start : start + draws.randint(1, 9)]
    return bytes(out)


def survives(read, path, same, seeds, names=None, limit_mb=400, limit_s=10.0):
    """Damage a file anew for each seed: reading gives what it gave, or an error that names it.

    :param read: reads whatever the file belongs to.
    :param same: tells whether what was read is what the whole file gave.
    :param names: what the error must name; the file by default.
    """
    whole, outcomes = path.read_bytes(), []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in seeds:
        data = damaged(whole, seed)
        if data == whole:
            continue
        path.write_bytes(data)
        start = time.monotonic()
        try:
            found = read()
        except ToscaError as error:
            assert (names or path.name) in str(error), f"seed {seed}: {error}"
            outcomes.append("refused")
        except BaseException as error:  # pragma: no cover
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        else:
            assert same(found), f"seed {seed}: damage went unnoticed"
            outcomes.append("whole")
        assert time.monotonic() - start < limit_s, f"seed {seed} took too long"
    path.write_bytes(whole)
    assert same(read())
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < limit_mb, f"{grown:.0f} MB"
    return outcomes
