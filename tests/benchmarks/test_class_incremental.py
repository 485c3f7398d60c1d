"""Class order, task sizes and labels of the streams."""

import numpy as np
import pytest

from tosca_avalanche.backbones import Transforms
from tosca_avalanche.benchmarks import (
    LabelledImages,
    class_incremental,
    class_order,
    classes_of,
    task_sizes,
)
from tosca_avalanche.errors import InputError, StreamError

PLAIN = Transforms(lambda x: x, lambda x: x, "none")


def images(per_class):
    targets = [c for c, n in enumerate(per_class) for _ in range(n)]
    return LabelledImages([f"{c}-{i}" for i, c in enumerate(targets)], targets, str)


def test_the_papers_order_of_cifar100():
    order = class_order(100, 1993)
    assert order[:10] == [68, 56, 78, 8, 23, 84, 90, 65, 74, 76]
    assert sorted(order) == list(range(100))


def test_labels_follow_the_order_and_images_their_labels():
    benchmark = class_incremental(
        images([3, 4, 5, 2]), images([1, 1, 2, 1]), list("abcd"), PLAIN, [1, 3], None, 7
    )
    order = np.random.RandomState(7).permutation(4).tolist()
    assert benchmark.class_order == order
    assert benchmark.class_names == ["abcd"[c] for c in order]
    for stream in (benchmark.train_stream, benchmark.test_stream):
        assert [classes_of(e) for e in stream] == [[0], [1, 2, 3]]
        for experience in stream:
            for source, label in ((i[0], i[1]) for i in experience.dataset):
                assert int(source[0]) == order[label]
    assert [len(e.dataset) for e in benchmark.train_stream] == [
        [3, 4, 5, 2][order[0]],
        14 - [3, 4, 5, 2][order[0]],
    ]


@pytest.mark.parametrize(
    ("classes", "per_task", "first", "sizes"),
    [
        (100, 5, None, [5] * 20),
        (100, 30, 10, [10, 30, 30, 30]),
        (100, [10, 30, 30, 29, 1], None, [10, 30, 30, 29, 1]),
        (10, 4, None, [4, 4, 2]),
        (5, [2, 1, 1, 1], None, [2, 1, 1, 1]),
        (500, 1, None, [1] * 500),
        (7, 3, 7, [7]),
    ],
)
def test_task_sizes(classes, per_task, first, sizes):
    assert task_sizes(classes, per_task, first) == sizes


@pytest.mark.parametrize(
    ("per_task", "first", "says"),
    [
        (0, None, "0"),
        (11, None, "11"),
        ([5, 4], None, "adds up to 9"),
        ([11, -1], None, "-1"),
        (2, 12, "12"),
        ([5, 5], 2, "init_classes"),
    ],
)
def test_sizes_that_do_not_fit(per_task, first, says):
    with pytest.raises(StreamError, match=says):
        task_sizes(10, per_task, first)


def test_a_class_without_training_images_is_named():
    with pytest.raises(StreamError, match="'b'"):
        class_incremental(images([2, 0, 1]), images([1, 1, 1]), list("abc"), PLAIN, 1)


def test_targets_are_whole_numbers_and_nothing_is_read_into_them():
    for numbers in ([1, 0], [np.int64(1), np.uint8(0)], [1.0, 0.0]):
        assert LabelledImages(["a", "b"], numbers, str).targets == [1, 0]
    for name in ("cat", "1", 0.5, None, float("nan"), float("inf")):
        with pytest.raises(InputError, match=f"{name!r} is no whole number; map"):
            LabelledImages(["a", "b"], [0, name], str)
