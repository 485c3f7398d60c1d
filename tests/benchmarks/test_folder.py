"""Folder streams, right and wrong, and tars of them."""

import tarfile

import numpy as np
import pytest
from PIL import Image

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.benchmarks import classes_of, folder
from tosca_avalanche.errors import StreamError


@pytest.fixture
def transforms():
    return load_backbone("tiny_vit_64").transforms


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(0)
    top = tmp_path / "shapes"
    for side, n in (("train", 3), ("test", 2)):
        for name in ("zebra", "ant", "10", "9"):
            place = top / side / name
            place.mkdir(parents=True)
            for i in range(n):
                pixels = rng.integers(0, 255, (9, 7, 3), np.uint8)
                Image.fromarray(pixels).save(place / f"{i}.{'PNG' if i else 'jpg'}")
    (top / "train" / "ant" / ".hidden.png").write_bytes(b"")
    (top / "train" / "ant" / "notes.txt").write_text("no image")
    (top / "train" / ".git").mkdir()
    (top / "classes.txt").write_text("zebra")
    return top


def test_a_folder(root, transforms):
    benchmark = folder(str(root), transforms, classes_per_task=3, class_order_seed=None)
    assert benchmark.class_names == ["10", "9", "ant", "zebra"]
    assert [len(e.dataset) for e in benchmark.train_stream] == [9, 3]
    assert [len(e.dataset) for e in benchmark.test_stream] == [6, 2]
    assert classes_of(benchmark.train_stream[1]) == [3]
    image, label = benchmark.test_stream[1].dataset[0][:2]
    assert image.shape == (3, 64, 64) and label == 3


def without_filters(filters, monkeypatch):
    if not filters:  # as early patch releases of Python 3.10 and 3.11 are
        monkeypatch.delattr(tarfile, "data_filter", raising=False)


@pytest.mark.parametrize("filters", [True, False])
def test_a_tar_is_unpacked_once(filters, root, transforms, tmp_path, monkeypatch):
    without_filters(filters, monkeypatch)
    monkeypatch.setenv("TOSCA_CACHE", str(tmp_path / "cache"))
    archive = tmp_path / "shapes.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(root, "shapes")
    for _ in range(2):
        benchmark = folder(str(archive), transforms, classes_per_task=2)
        assert sum(len(e.dataset) for e in benchmark.train_stream) == 12
        streams = [p for p in (tmp_path / "cache/streams").iterdir() if p.is_dir()]
        assert len(streams) == 1
        (streams[0] / "mark").touch()
    assert (streams[0] / "mark").exists()


@pytest.mark.parametrize("filters", [True, False])
def test_a_tar_that_leads_out_of_its_folder_is_refused(filters, tmp_path, transforms, monkeypatch):
    without_filters(filters, monkeypatch)
    monkeypatch.setenv("TOSCA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "x").write_text("x")
    archive = tmp_path / "bad.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "x", "../../evil")
    with pytest.raises(StreamError, match=r"bad\.tar could not be unpacked"):
        folder(str(archive), transforms)
    assert not (tmp_path / "cache" / "evil").exists() and not (tmp_path / "evil").exists()


def test_what_is_wrong_is_named(root, transforms, tmp_path):
    with pytest.raises(StreamError, match=r"nowhere does not exist.*ROOT/train/CLASS"):
        folder(str(tmp_path / "nowhere"), transforms)
    (tmp_path / "empty" / "images").mkdir(parents=True)
    with pytest.raises(StreamError, match="holds images; expected"):
        folder(str(tmp_path / "empty"), transforms)
    (root / "test" / "lion").mkdir()
    with pytest.raises(StreamError, match=r"class 'lion' has no images .1 of 5"):
        folder(str(root), transforms, classes_per_task=2)


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff\xe0 truncated"])
def test_an_image_that_can_not_be_decoded_is_named(content, root, transforms):
    (root / "train" / "ant" / "bad.png").write_bytes(content)
    benchmark = folder(str(root), transforms, classes_per_task=4, class_order_seed=None)
    with pytest.raises(StreamError, match=r"ant.bad\.png can't be decoded"):
        list(benchmark.train_stream[0].dataset)


def test_a_class_on_one_side_is_said(root, transforms):
    (root / "test" / "ant" / "0.jpg").unlink()
    (root / "test" / "ant" / "1.PNG").unlink()
    with pytest.warns(UserWarning, match=r"1 of 4 classes have no test images, .*'ant'"):
        benchmark = folder(str(root), transforms, classes_per_task=1, class_order_seed=None)
    assert [len(e.dataset) for e in benchmark.test_stream] == [2, 2, 0, 2]
    for image in (root / "train" / "zebra").iterdir():
        image.unlink()
    with pytest.raises(StreamError, match=r"class 'zebra' has only test images"):
        folder(str(root), transforms)


def test_bad_files_are_skipped_on_request_and_counted(root, transforms):
    (root / "train" / "ant" / "bad.png").write_bytes(b"")
    (root / "test" / "9" / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.warns(UserWarning, match=r"2 files of .* left out, the first is .*bad\.png"):
        benchmark = folder(str(root), transforms, classes_per_task=4, skip_bad=True)
    assert len(list(benchmark.train_stream[0].dataset)) == 12
    assert len(list(benchmark.test_stream[0].dataset)) == 8


def test_sizes_as_a_list(root, transforms):
    benchmark = folder(str(root), transforms, classes_per_task=[1, 3])
    assert benchmark.task_sizes == [1, 3]
    with pytest.raises(StreamError, match=r"classes_per_task=\[1, 2\].*add up to 4"):
        folder(str(root), transforms, classes_per_task=[1, 2])


def test_what_lies_beside_train_is_said(root, transforms):
    (root / "test").rename(root / "val")
    with pytest.warns(UserWarning, match=r"has no folder test; val beside train is not read"):
        benchmark = folder(str(root), transforms, classes_per_task=4)
    assert benchmark.split.endswith(".json")
    (root / "x.zip").write_bytes(b"PK")
    with pytest.raises(StreamError, match=r"x\.zip is a file but no tar"):
        folder(str(root / "x.zip"), transforms)
