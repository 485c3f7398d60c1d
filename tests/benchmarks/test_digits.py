"""The embedded stream."""

import numpy as np
from sklearn.datasets import load_digits

from tosca_avalanche.backbones import Transforms
from tosca_avalanche.benchmarks import classes_of, digits

PLAIN = Transforms(lambda x: x, lambda x: x, "none")


def test_the_split_is_fixed_and_complete():
    benchmark = digits(PLAIN)
    sizes = {name: [len(e.dataset) for e in s] for name, s in benchmark.streams.items()}
    assert sum(sizes["train"]) == 1347 and sum(sizes["test"]) == 450
    assert benchmark.class_order == [4, 2, 7, 6, 0, 3, 5, 8, 9, 1]
    assert [classes_of(e) for e in benchmark.train_stream] == [[2 * t, 2 * t + 1] for t in range(5)]
    pixels = [
        item[0].tobytes() for s in benchmark.streams.values() for e in s for item in e.dataset
    ]
    whole = [np.round(i * 255 / 16).astype(np.uint8).tobytes() for i in load_digits().images]
    assert sorted(pixels) == sorted(whole)
    again = digits(PLAIN)
    assert all(
        np.array_equal(a.dataset[0][0], b.dataset[0][0])
        for a, b in zip(benchmark.test_stream, again.test_stream, strict=True)
    )


def test_other_sizes_and_orders():
    benchmark = digits(PLAIN, classes_per_task=[5, 3, 2], class_order_seed=None)
    assert benchmark.class_names == list("0123456789")
    assert [len(classes_of(e)) for e in benchmark.test_stream] == [5, 3, 2]
