"""A small model of three tasks, and how tests compare two of them."""

from __future__ import annotations

import numpy as np
import torch

from tests.conftest import TinyNet
from tests.learner.pictures import pictures
from tosca_avalanche import ToscaClassifier, load_backbone

QUICK = {"epochs": 3, "batch_size": 8, "lr": 0.1, "store": None, "seed": 4}
TASKS = (["cat", "dog", "emu"], ["ant", "bee"], ["dog", "fox"])


def learned(n: int = 3, **settings):
    model = ToscaClassifier(load_backbone(TinyNet()), **{**QUICK, **settings})
    for t in range(n):
        add(model, t)
    return model


def add(model, t):
    names = np.array(TASKS[t])
    x, y = pictures([ord(name[0]) for name in TASKS[t]], seed=t, size=4)
    model.add_task(x, names[np.searchsorted(np.unique(y), y)])


def images():
    return pictures([ord(c) for c in "abcdef"], seed=9, size=4)[0]


def load(folder, **options):
    return ToscaClassifier.load(folder, TinyNet(), store=None, **options)


def same(a, b):
    ours, theirs = a.net.state()[0], b.net.state()[0]
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)
