"""Seeded private generators: no draw of this package touches the global random state."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive_seed(seed: int, *keys: int | str) -> int:
    """Return a 63-bit seed for one purpose, from the user's seed and the purpose's keys.

    Different keys give independent streams (numpy's SeedSequence); the same keys give
    the same seed on every machine, whatever was drawn before. That is what makes a
    resumed run equal to an uninterrupted one.

    >>> derive_seed(1993, "shuffle", 0) == derive_seed(1993, "shuffle", 0)
    True
    >>> derive_seed(1993, "shuffle", 0) == derive_seed(1993, "shuffle", 1)
    False
    """
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be an integer from 0 to 2**64 - 1, got {seed}")
    words = [k if isinstance(k, int) else zlib.crc32(k.encode()) for k in keys]
    state = np.random.SeedSequence([seed, *words]).generate_state(1, np.uint64)
    return int(state[0]) >> 1


def generator(seed: int, *keys: int | str) -> torch.Generator:
    """Return a CPU generator seeded by :func:`derive_seed`."""
    return torch.Generator().manual_seed(derive_seed(seed, *keys))


@contextmanager
def seeded_globals(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's, numpy's and Python's global generators inside the block, then put them back.

    For code that can only draw from the global state, such as image augmentations and
    the initialisers of other libraries.

    :param device: a CUDA device whose generator is seeded and put back too; those of other
        devices are never touched.
    """
    cuda = [device] if device is not None and device.type == "cuda" else []
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every device
        for one in cuda:
            with torch.cuda.device(one):
                torch.cuda.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
