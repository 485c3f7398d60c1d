"""Characters from matplotlib's fonts."""

import numpy as np
import pytest

from tosca_avalanche.benchmarks import glyphs
from tosca_avalanche.benchmarks.glyphs import characters, draw
from tosca_avalanche.errors import StreamError


def pixels(experience):
    data = experience.dataset
    return np.stack([np.asarray(data[i][0]) for i in range(len(data))])


def test_several_hundred_characters_that_look_different():
    known = characters()
    assert len(known) >= 500 and len(set(known)) == len(known)
    assert "A" in known and "Α" not in known, "Greek Alpha looks like Latin A"
    assert list(known) == sorted(known)


def test_an_image_depends_on_its_class_and_number_alone():
    assert np.array_equal(draw("A", 3), draw("A", 3))
    assert not np.array_equal(draw("A", 3), draw("A", 4))
    assert not np.array_equal(draw("A", 3), draw("B", 3))
    images = [draw(c, s) for c in characters()[:40] for s in range(5)]
    assert all(i.shape == (32, 32) and i.dtype == np.uint8 and i.max() > 100 for i in images)
    assert len({i.tobytes() for i in images}) == 200


def test_the_stream():
    benchmark = glyphs(n_classes=23, classes_per_task=5, train_per_class=3, test_per_class=2)
    assert benchmark.task_sizes == [5, 5, 5, 5, 3], "the remainder is never dropped"
    assert [len(e.dataset) for e in benchmark.train_stream] == [15, 15, 15, 15, 9]
    assert [len(e.dataset) for e in benchmark.test_stream] == [10, 10, 10, 10, 6]
    more = glyphs(n_classes=23, classes_per_task=5, train_per_class=3, test_per_class=4)
    ours, theirs = pixels(benchmark.test_stream[4]), pixels(more.test_stream[4])
    for c in range(3):  # the first two images of a class, whether there are two or four
        assert np.array_equal(ours[2 * c : 2 * c + 2], theirs[4 * c : 4 * c + 2])
    assert benchmark.class_names == more.class_names


def test_too_many_are_refused():
    with pytest.raises(StreamError, match=r"n_classes=100000: there are 1 to \d+ characters"):
        glyphs(n_classes=100_000)
    with pytest.raises(StreamError, match="train_per_class=0"):
        glyphs(n_classes=2, classes_per_task=1, train_per_class=0)
