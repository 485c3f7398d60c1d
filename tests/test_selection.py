"""Selection rules against entropies written out."""

import math

import pytest
import torch

from tosca_avalanche.selection import (
    entropy,
    own_log_posterior,
    route,
    select_entropy,
    select_entropy_batch,
    select_oracle,
)


def literal_entropy(logits):
    top = max(logits)
    weights = [math.exp(v - top) for v in logits]
    p = [w / sum(weights) for w in weights]
    return -sum(q * math.log(q) for q in p if q > 0)


@pytest.fixture
def logits():
    return 3 * torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(0))


def test_per_image_and_per_batch(logits):
    table = [[literal_entropy(row) for row in module] for module in logits.tolist()]
    per_image = [min(range(4), key=lambda t: table[t][i]) for i in range(9)]
    assert select_entropy(logits).tolist() == per_image
    whole = min(range(4), key=lambda t: sum(table[t]))
    assert select_entropy_batch(logits).tolist() == [whole] * 9
    assert len(set(per_image)) > 1


def test_entropy_of_large_logits_is_finite():
    assert entropy(torch.tensor([1e4, -1e4, 0.0])).item() == 0
    assert entropy(torch.full((3,), 1e30)).item() == pytest.approx(math.log(3))


def test_ties_go_to_the_lowest_module():
    same = torch.tensor([1.0, 2.0, 0.5]).expand(5, 2, 3)
    assert select_entropy(same).tolist() == [0, 0]
    assert select_entropy_batch(same).tolist() == [0, 0]
    later = torch.cat([torch.zeros(2, 2, 3), same])
    assert select_entropy(later).tolist() == [2, 2]


def test_oracle_falls_back_for_tasks_it_does_not_know(logits):
    ids = torch.tensor([0, 1, 2, 3, 4, -1, 3, 2, 1])
    out = select_oracle(logits, ids)
    own = select_entropy(logits)
    assert out.tolist() == [0, 1, 2, 3, own[4].item(), own[5].item(), 3, 2, 1]


def test_an_image_alone_gets_the_same_module(logits):
    alone = torch.cat([select_entropy(logits[:, i : i + 1]) for i in range(9)])
    assert torch.equal(alone, select_entropy(logits))


@pytest.mark.parametrize("shape", [(3, 4), (0, 3, 4), (3, 4, 0)])
def test_bad_shapes_are_named(shape):
    with pytest.raises(ValueError, match="modules, images, classes"):
        select_entropy(torch.zeros(shape))


TASK_OF_ROW = torch.tensor([0, 0, 1, 1, 1, 2])
CLASS_OF_ROW = torch.tensor([0, 1, 2, 0, 3, 1])  # classes 0 and 1 came twice


def literal_route(router, logits):
    """Return scores, winning class and its task for each image, one number at a time."""
    out = []
    for b in range(len(router)):
        own = []
        for r, t in enumerate(TASK_OF_ROW.tolist()):
            among = [math.exp(logits[t][b][q]) for q in range(6) if TASK_OF_ROW[q] == t]
            own.append(math.log(math.exp(logits[t][b][r]) / sum(among)))
        scores, tasks = [], []
        for c in range(4):
            mine = [r for r in range(6) if CLASS_OF_ROW[r] == c]
            best = max(mine, key=lambda r: own[r])
            scores.append((router[b][c] + own[best]) / 10)
            tasks.append(TASK_OF_ROW[best].item())
        winner = max(range(4), key=lambda c: scores[c])
        out.append((scores, tasks[winner]))
    return out


def test_the_routed_rule_is_the_product_written_out():
    g = torch.Generator().manual_seed(1)
    logits, router = 3 * torch.randn(3, 50, 6, generator=g), 2 * torch.randn(50, 4, generator=g)
    rows = own_log_posterior(logits, TASK_OF_ROW)
    scores, best = route(router, rows, CLASS_OF_ROW)
    expected = literal_route(router.tolist(), logits.tolist())
    assert torch.allclose(scores, torch.tensor([e[0] for e in expected]), atol=1e-5)
    assert TASK_OF_ROW[best].tolist() == [e[1] for e in expected]
    assert len(set(TASK_OF_ROW[best].tolist())) == 3


def test_the_modules_decide_where_the_router_can_not():
    logits = torch.zeros(3, 2, 6)
    logits[1, 0, 4] = logits[1, 1, 2] = 2.0
    router = torch.tensor([[-9.0, -9.0, 0.0, 0.0]]).expand(2, 4)
    scores, best = route(router, own_log_posterior(logits, TASK_OF_ROW), CLASS_OF_ROW)
    assert scores.argmax(dim=1).tolist() == [3, 2] and best.tolist() == [4, 2]


def test_ties_of_the_routed_rule_go_to_the_lowest():
    rows = own_log_posterior(torch.zeros(3, 2, 6), TASK_OF_ROW)
    assert route(torch.zeros(2, 4), rows * 0, CLASS_OF_ROW)[1].tolist() == [0, 0]
