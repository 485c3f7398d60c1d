"""Mixed test experiences: the order in which batch protocols read the images."""

import numpy as np
import pytest

from tests.streams import of_tasks
from tosca_avalanche.benchmarks import mixed_experience


@pytest.fixture
def tests():
    return of_tasks([[4, 0], [2], [1, 3]]).test_stream


def test_class_sorted_reads_task_after_task_and_class_after_class(tests):
    mixed = mixed_experience(tests, "class-sorted")
    labels = [int(item[1]) for item in mixed.dataset]
    assert labels == [c for c in (0, 4, 2, 1, 3) for _ in range(4)]
    assert mixed.sample_tasks.tolist() == [0] * 8 + [1] * 4 + [2] * 8


def test_shuffled_is_a_seeded_permutation(tests):
    a, b, c = (mixed_experience(tests, "shuffled", seed) for seed in (1, 1, 2))
    assert np.array_equal(a.sample_tasks, b.sample_tasks)
    assert not np.array_equal(a.sample_tasks, c.sample_tasks)
    own = {0: 0, 4: 0, 2: 1, 1: 2, 3: 2}
    assert [own[int(item[1])] for item in a.dataset] == a.sample_tasks.tolist()
    assert sorted(a.sample_tasks) == sorted(c.sample_tasks)
    assert a.origin_stream.name == "test"


def test_other_orders_are_named(tests):
    with pytest.raises(ValueError, match="order='x'"):
        mixed_experience(tests, "x")
