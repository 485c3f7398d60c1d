"""What each method stores, trains, and passes through a transformer, counted by hand."""

import pytest
import torch

from tests.conftest import blobs
from tests.strategies.methods import METHODS, PROMPTS, make
from tests.strategies.methods import fresh as fresh_for
from tests.streams import of_tasks
from tosca_avalanche.metrics import count_parameters

pytestmark = pytest.mark.filterwarnings("ignore:No loggers")
TASKS = [[0, 1], [2, 3], [4]]
D, DEPTH, WIDTH, M = 32, 2, 4, 200
SET = DEPTH * (2 * D * WIDTH + D + WIDTH)
LUCA = 4 * D * 2 + 3 * D + 2
# TinyViT: patches, positions, [CLS], two blocks, the last norm
NETWORK = 416 + 160 + 32 + 2 * 12_704 + 64


def fresh(method):
    """Return a transformer for all of them, so that counts can be compared."""
    return fresh_for("ease")


@pytest.mark.parametrize("method", METHODS)
def test_passes_of_a_new_image_are_those_that_happen(method):
    backbone = fresh(method)
    strategy = make(method, backbone)
    growing = {"ease": [1, 2, 3], "mos": [1, 2, 3]}
    twice = method == "aper" or method in PROMPTS
    expected = growing.get(method, [1 + twice] * 3)
    passes = []
    for experience in of_tasks(TASKS).train_stream:
        strategy.train(experience, eval_streams=[])
        model, count = strategy.model.eval(), [0]
        transformers = [backbone.module, getattr(model, "network", None)]
        hooks = [
            m.blocks[0].register_forward_hook(
                lambda *_, count=count: count.__setitem__(0, count[0] + 1)
            )
            for m in transformers
            if m is not None
        ]
        with torch.no_grad():
            model(blobs(2, 3, 0).tensors[0])
        for hook in hooks:
            hook.remove()
        assert count[0] == model.passes_per_image
        passes.append(count[0])
    assert passes == expected


STORED = {
    # two adapter halves of a class mean (double, so one number each), and its count
    "aper": [SET + 2 * (2 * D + 1), SET + 4 * (2 * D + 1), SET + 5 * (2 * D + 1)],
    # per block and component: P of two rows, K, A
    "codaprompt": [t * 2 * 3 * 4 * D + n * (D + 1) for t, n in ((1, 2), (2, 4), (3, 5))],
    # general prompt, an expert and a key per task
    "dualprompt": [4 * D + t * 5 * D + n * (D + 1) for t, n in ((1, 2), (2, 4), (3, 5))],
    "ease": [SET + 2 * D, 2 * SET + (2 + 4) * D, 3 * SET + (2 + 4 + 3) * D],
    "finetune": [NETWORK + n * (D + 1) for n in (2, 4, 5)],
    "joint": [LUCA + n * D + 1 for n in (2, 4, 5)],
    "joint_finetune": [NETWORK + n * (D + 1) for n in (2, 4, 5)],
    "l2p": [6 * 3 * D + n * (D + 1) for n in (2, 4, 5)],
    # head row and bias, anchor, mean, covariance
    "mos": [t * SET + n * (3 * D + 1 + D * D) for t, n in ((1, 2), (2, 4), (3, 5))],
    "ranpac": [SET + D * M + M * M + n * M for n in (2, 4, 5)],
    "simplecil": [n * (D + 1) for n in (2, 4, 5)],
    "slda": [n * (D + 1) + D * D for n in (2, 4, 5)],
    "tosca": [t * LUCA + n * D + 1 for t, n in ((1, 2), (2, 4), (3, 5))],
    # head rows; count, sum and products of each class; random features and their products
    "tosca_routed": [
        t * LUCA + n * D + 1 + n * (1 + D + D * D) + 100 * (D + 100 + n)
        for t, n in ((1, 2), (2, 4), (3, 5))
    ],
}
TRAINED = {
    "aper": [SET + 2 * D + 1, 0, 0],
    "codaprompt": [2 * 3 * 4 * D + n * (D + 1) for n in (2, 4, 5)],
    "dualprompt": [4 * D + 5 * D + n * (D + 1) for n in (2, 4, 5)],
    "ease": [SET + 2 * D + 1, SET + 2 * D + 1, SET + D + 1],
    "finetune": STORED["finetune"],
    "joint": STORED["joint"],
    "joint_finetune": STORED["finetune"],
    "l2p": STORED["l2p"],
    "mos": [SET + n * (D + 1) for n in (2, 4, 5)],
    "ranpac": [SET + 2 * D + 1, 0, 0],
    "simplecil": [0, 0, 0],
    "slda": [0, 0, 0],
    "tosca": [LUCA + 2 * D + 1, LUCA + 2 * D + 1, LUCA + D + 1],
    "tosca_routed": [LUCA + 2 * D + 1, LUCA + 2 * D + 1, LUCA + D + 1],
}


@pytest.mark.parametrize("method", METHODS)
def test_stored_and_trained_numbers(method):
    backbone = fresh(method)
    assert count_parameters(backbone) == NETWORK
    strategy = make(method, backbone)
    stored, trained = [], []
    for experience in of_tasks(TASKS).train_stream:
        strategy.train(experience, eval_streams=[])
        stored.append(count_parameters(strategy.model) - count_parameters(backbone))
        groups = strategy.optimizer.param_groups if strategy.optimizer else []
        trained.append(sum(p.numel() for g in groups for p in g["params"]))
    assert stored == STORED[method]
    assert trained == TRAINED[method]
