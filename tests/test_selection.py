"""Selection rules against entropies written out."""

import math

import pytest
import torch

from tosca_avalanche.selection import entropy, select_entropy, select_entropy_batch, select_oracle


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
