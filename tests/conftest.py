"""Small real things that all tests share: a tiny frozen net, coloured-blob images, streams."""

from __future__ import annotations

import multiprocessing
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may reach for a network
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # none, whatever the shell has
os.environ["OMP_NUM_THREADS"] = "1"  # one test per core; small tensors gain nothing from more
os.environ["TOSCA_CACHE"] = tempfile.mkdtemp(prefix="tosca-tests-")  # nobody's real cache

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tosca_avalanche.backbones import load_backbone

torch.set_num_threads(1)
if "TOSCA_START_METHOD" in os.environ:  # spawn, as other systems have it
    multiprocessing.set_start_method(os.environ["TOSCA_START_METHOD"], force=True)


class TinyNet(nn.Module):
    """Images [B, 3, 4, 4] to features [B, 32], with dropout and batch norm that must not act."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.linear = nn.Linear(48, 32)
        with torch.no_grad():
            for p in self.linear.parameters():
                p.copy_(0.3 * torch.randn(p.shape, generator=generator))
        self.norm = nn.BatchNorm1d(32)
        self.dropout = nn.Dropout(0.5)
        self.embed_dim = 32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.norm(torch.tanh(self.linear(x.flatten(1)))))


@pytest.fixture
def backbone():
    return load_backbone(TinyNet())


def blobs(n_classes: int, per_class: int, seed: int, labels=None, spread: float = 0.7):
    """Images around one centre per class; the same centres for every seed."""
    labels = list(range(n_classes)) if labels is None else labels
    centres = torch.randn(1000, 48, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    y = torch.tensor(labels).repeat_interleave(per_class)
    noise = torch.randn(len(y), 48, generator=generator)
    x = (centres[y] + spread * noise).reshape(-1, 3, 4, 4)
    data = TensorDataset(x, y)
    data.targets = y.tolist()
    return data


@pytest.fixture
def rng():
    return np.random.default_rng(0)
