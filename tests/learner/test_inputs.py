"""Every form of a picture gives one answer; what can't be meant is named."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.learner.pictures import pictures, write_folder
from tosca_avalanche.errors import InputError
from tosca_avalanche.learner.inputs import Pictures, as_rgb, labelled, sources_of
from tosca_avalanche.learner.labels import Labels, plain_labels


def test_every_form_is_the_same_picture(tmp_path):
    array = pictures([3], 1)[0][0]
    Image.fromarray(array).save(tmp_path / "x.png")
    tensor = torch.from_numpy(array).permute(2, 0, 1)
    forms = [
        array,
        Image.fromarray(array),
        array / 255,
        (array / 255).astype(np.float32),
        tensor,
        tensor / 255,
        (tensor / 255).double(),
        tmp_path / "x.png",
        str(tmp_path / "x.png"),
    ]
    for form in forms:
        for one in (sources_of(form)[0], sources_of([form])[0]):
            assert np.array_equal(np.asarray(as_rgb(one, "x")), array)


def test_grey_and_transparent_forms():
    grey = np.arange(30, dtype=np.uint8).reshape(5, 6)
    for form in (grey, grey[..., None], grey[..., None] / 255, torch.from_numpy(grey)[None]):
        out = np.asarray(as_rgb(sources_of(form)[0], "x"))
        assert np.array_equal(out, np.stack([grey] * 3, -1))
    clear = np.zeros((5, 6, 4), np.uint8)
    assert (np.asarray(as_rgb(clear, "x")) == 255).all(), "transparent pixels come out on white"
    thin = np.zeros((7, 1), np.uint8)
    assert as_rgb(thin, "x").size == (1, 7)


def test_batches_and_features():
    images, _ = pictures([0, 1], 3)
    assert len(sources_of(images)) == len(sources_of(list(images))) == 6
    assert len(sources_of(torch.from_numpy(images).permute(0, 3, 1, 2))) == 6
    for features in (np.ones((2, 5)), torch.ones(2, 5), [[1.0] * 5] * 2, [np.ones(5)] * 2):
        out = sources_of(features)
        assert isinstance(out, torch.Tensor) and out.shape == (2, 5) and out.dtype == torch.float32
    assert len(sources_of([])) == 0


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((3, 8, 9), np.uint8), r"image 7 has shape \(3, 8, 9\).*the other order"),
        (torch.zeros(8, 9, 3), r"\(8, 9, 3\); a tensor is \[C, H, W\].*the other order"),
        (np.zeros((8, 9, 5), np.uint8), r"\(8, 9, 5\).*C = 1, 3 or 4"),
        (np.zeros((0, 9, 3), np.uint8), r"\(0, 9, 3\)"),
        (np.full((8, 9, 3), 200.0), r"from 200 to 200.*divide by 255"),
        (np.full((8, 9, 3), -1.5), r"from -1.5 to -1.5.*normalisation"),
        (np.full((8, 9, 3), np.nan), r"nan.*look at its pixels"),
        (np.zeros((8, 9, 3), np.int64), "type int64.*uint8"),
        (Image.new("F", (4, 4)), "image 7: it has floating-point pixels"),
        ({"image": 1}, "image 7 is of type dict"),
    ],
)
def test_wrong_images_are_named(image, message):
    with pytest.raises(InputError, match=message):
        as_rgb(image, "image 7")


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(4), r"shape \(4,\)"),
        (np.zeros((1, 2, 3, 4, 5)), r"shape \(1, 2, 3, 4, 5\)"),
        (3, "type int"),
        ([[1.0], [1.0, 2.0]], r"different widths: \[1, 2\]"),
        ("/nothing/there.png", "/nothing/there.png is no file"),
    ],
)
def test_wrong_batches_are_named(x, message):
    with pytest.raises(InputError, match=message):
        sources_of(x)


def test_a_folder_of_classes(tmp_path):
    root = write_folder(tmp_path / "a", {0: "cat", 1: "dog"}, per_class=2)
    paths, labels = labelled(root, None)
    assert labels == ["cat", "cat", "dog", "dog"]
    assert [p.parent.name for p in paths] == labels
    assert sources_of(str(root)) == paths, "without labels: the images below it"
    (root / "empty").mkdir()
    with pytest.raises(InputError, match="'empty' has no images"):
        labelled(root, None)
    with pytest.raises(InputError, match="did you mean"):
        labelled(tmp_path, None)
    with pytest.raises(InputError, match="no such folder"):
        labelled(tmp_path / "b", None)
    with pytest.raises(InputError, match="no class folders"):
        labelled(root / "cat", None)
    with pytest.raises(InputError, match="holds no images"):
        sources_of(root / "empty")


class Items(torch.utils.data.Dataset):
    """Counts what is read; labels may be changed on the way out."""

    def __init__(self, targets, add: int = 0):
        self.images = pictures(range(len(targets)), 1)[0]
        self.targets, self.add, self.read = targets, add, []

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        self.read.append(index)
        return self.images[index], self.targets[index] + self.add


def test_a_data_set_of_images_and_labels():
    data = Items([4, 2, 9, 4])
    x, y = labelled(data, None)
    assert y == [4, 2, 9, 4] and set(data.read) == {0, 3}, "labels without reading the images"
    assert np.array_equal(sources_of(x)[1], data.images[1])
    assert labelled(Items([4, 2, 9, 4], add=1), None)[1] == [5, 3, 10, 5]
    with pytest.raises(InputError, match="labels are missing"):
        labelled(data.images, None)


def test_labels():
    assert plain_labels(np.array([3, -1])) == [3, -1]
    assert plain_labels(torch.tensor([3, 1])) == [3, 1]
    assert plain_labels([np.int64(2), torch.tensor(4)]) == [2, 4]
    assert plain_labels(np.array(["a", "b"])) == ["a", "b"] and plain_labels("ab") == ["ab"]
    assert {type(v) for v in plain_labels(np.array(["a", "b"]))} == {str}
    for wrong, message in (
        ([1.5], "1.5 of type float"),
        ([True], "True of type bool"),
        ([None], "NoneType"),
        (["a", 1], "label 0 is 'a' and label 1 is 1"),
    ):
        with pytest.raises(InputError, match=message):
            plain_labels(wrong)


def test_numbers_come_in_order_of_arrival_and_sorted_within_a_task():
    labels = Labels().plus(["d", "b"]).plus(["a", "d", "c"], ["A", "C", "D"])
    assert labels.by_number == {0: "b", 1: "d", 2: "a", 3: "c"}
    assert labels.numbers(["c", "b"]) == [3, 0] and labels.labels([2, 1]).tolist() == ["a", "d"]
    assert [labels.name(v) for v in "abcd"] == ["A", "b", "C", "D"]
    assert labels.only([0, 2]).by_number == {0: "b", 2: "a"}
    assert labels.only([0, 2]).plus(["z"]).by_number[3] == "z"
    with pytest.raises(InputError, match="str so far"):
        labels.plus([1])
    for names in (["A"], "AB", {"q": "Q"}):
        with pytest.raises(InputError, match="names"):
            labels.plus(["a", "b"], names)


def test_keys_are_by_file_or_by_pixels(tmp_path):
    array = pictures([3], 1)[0][0]
    for name in ("x.png", "y.png"):
        Image.fromarray(array).save(tmp_path / name)
    forms = [array, array / 255, tmp_path / "x.png", tmp_path / "y.png"]
    keys = [Pictures(forms, as_rgb).key(i) for i in range(4)]
    assert keys[0] == keys[1] and keys[2] == keys[3] and len(set(keys)) == 2
