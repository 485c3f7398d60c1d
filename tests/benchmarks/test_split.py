"""Seeded splits: drawn once, written down, read ever after."""

import json
import shutil

import numpy as np
import pytest

from tests.benchmarks.trees import write_image, write_tree
from tosca_avalanche.benchmarks import folder
from tosca_avalanche.benchmarks.split import seeded_split
from tosca_avalanche.errors import StreamError
from tosca_avalanche.images import image_files


def files_of(top):
    return {p.name: image_files(p) for p in sorted(top.iterdir()) if p.is_dir()}


@pytest.fixture
def top(tmp_path):
    write_tree(tmp_path / "all", ["a", "b"], train=10, test=None)
    return write_tree(tmp_path / "all", ["c"], train=1, test=None)


def names(side):
    return {k: [p.name for p in own] for k, own in side.items()}


def test_a_fifth_of_each_class_and_the_same_ever_after(top):
    train, test, place = seeded_split(top, files_of(top))
    assert [len(test[k]) for k in "abc"] == [2, 2, 0] and len(train["c"]) == 1
    assert not {*train["a"]} & {*test["a"]}
    written = json.loads(place.read_text())
    assert place.parent == top and len(written["test"]) == 4 and len(written["images"]) == 21
    before = place.read_bytes()
    again = seeded_split(top, files_of(top))
    assert names(again[1]) == names(test) and place.read_bytes() == before


def test_a_class_is_split_the_same_whatever_else_there_is(top, tmp_path):
    _, test, _ = seeded_split(top, files_of(top))
    alone = write_tree(tmp_path / "alone", ["a"], train=10, test=None)
    assert names(seeded_split(alone, files_of(alone))[1])["a"] == names(test)["a"]
    _, other, place = seeded_split(top, files_of(top), seed=1)
    assert names(other) != names(test) and place.name == "split-0.2-seed-1.json"


def test_two_images_give_one_for_testing(tmp_path):
    top = write_tree(tmp_path, ["a"], train=2, test=None)
    train, test, _ = seeded_split(top, files_of(top), share=0.01)
    assert len(train["a"]) == len(test["a"]) == 1
    train, test, _ = seeded_split(top, files_of(top), share=0.99)
    assert len(train["a"]) == len(test["a"]) == 1


def test_other_images_are_said_and_nothing_is_drawn_anew(top):
    place = seeded_split(top, files_of(top))[2]
    before = place.read_bytes()
    write_image(top / "b" / "new.png")
    with pytest.raises(StreamError, match=r"1 are new, 0 are gone, the first is b/new\.png"):
        seeded_split(top, files_of(top))
    (top / "b" / "new.png").unlink()
    (top / "a" / "3.png").unlink()
    with pytest.raises(StreamError, match=r"0 are new, 1 are gone, the first is a/3\.png"):
        seeded_split(top, files_of(top))
    assert place.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"images": 3, "test": []}'])
def test_a_damaged_split_is_named(top, content):
    place = seeded_split(top, files_of(top))[2]
    place.write_bytes(content)
    with pytest.raises(StreamError, match=r"split-0\.2-seed-0\.json can't be read") as error:
        seeded_split(top, files_of(top))
    assert "its folder" not in str(error.value), "the folder is the user's data"


def test_a_folder_that_can_not_be_written_to_keeps_its_split_in_the_cache(
    top, tmp_path, monkeypatch
):
    monkeypatch.setenv("TOSCA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("os.access", lambda *_: False)
    _, test, place = seeded_split(top, files_of(top))
    assert (tmp_path / "cache") in place.parents and not list(top.glob("split*"))
    assert names(seeded_split(top, files_of(top))[1]) == names(test)


def test_a_split_in_a_folder_that_can_only_be_read_is_read(top, monkeypatch):
    _, test, place = seeded_split(top, files_of(top))
    monkeypatch.setattr("os.access", lambda *_: False)

    def refuse(path):
        raise PermissionError(f"{path} is read-only")

    monkeypatch.setattr("tosca_avalanche.benchmarks.split.locked", refuse)
    again = seeded_split(top, files_of(top))
    assert again[2] == place and names(again[1]) == names(test)


@pytest.mark.parametrize("share", [0, 1, 20, -0.1])
def test_a_share_is_a_share(top, share):
    with pytest.raises(StreamError, match=f"test_share={share}"):
        seeded_split(top, files_of(top), share=share)


def test_skipping_bad_files_leaves_the_split_as_it_is(top):
    (top / "a" / "4.png").write_bytes(b"")
    first = folder(str(top), classes_per_task=1, class_order_seed=None)
    with pytest.warns(UserWarning, match="1 files of"):
        second = folder(str(top), classes_per_task=1, class_order_seed=None, skip_bad=True)
    sizes = [
        [len(e.dataset) for s in (b.train_stream, b.test_stream) for e in s]
        for b in (first, second)
    ]
    assert sum(sizes[0]) == 21 and sum(sizes[1]) == 20 and sizes[0][1:3] == sizes[1][1:3]


@pytest.mark.parametrize("layout", ["train", "plain"])
def test_a_folder_stream_without_test_images(tmp_path, layout):
    top = tmp_path / "own"
    write_tree(top / "train" if layout == "train" else top, ["a", "b"], train=5, test=None)
    sizes = []
    for _ in range(2):
        benchmark = folder(str(top), classes_per_task=1)
        sizes.append([len(e.dataset) for s in (benchmark.train_stream, benchmark.test_stream)
                      for e in s])  # fmt: skip
    assert sizes == [[4, 4, 1, 1]] * 2
    leaf = [np.asarray(i[0]) for i in benchmark.test_stream[0].dataset]
    assert len(leaf) == 1
    shutil.rmtree(top)
    with pytest.raises(StreamError, match="does not exist"):
        folder(str(top))
