"""Keys of images and of transforms: equal content, equal key, and nothing else."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T

from tosca_avalanche.features import image_key, transform_key


def picture(seed=0, size=(20, 30)):
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
    return Image.fromarray(pixels)


def test_content_decides_and_not_the_path(tmp_path):
    for name in ("a.png", "b.png"):
        picture().save(tmp_path / name)
    picture(1).save(tmp_path / "c.png")
    a, b, c = (image_key(tmp_path / f"{n}.png") for n in "abc")
    assert a == b != c and len(a) == 16
    assert image_key((tmp_path / "a.png").read_bytes()) == a


def test_pixels_shape_type_and_mode_count():
    grey = np.zeros((4, 6), np.uint8)
    items = [
        grey, grey.reshape(6, 4), grey.astype(np.int16), torch.from_numpy(grey),
        Image.fromarray(grey), Image.fromarray(grey).convert("RGB"), picture(), picture(1),
    ]  # fmt: skip
    assert len({image_key(i) for i in items}) == len(items)
    assert image_key(picture()) == image_key(picture())
    assert image_key(grey[:, ::-1]) == image_key(np.ascontiguousarray(grey[:, ::-1]))
    with pytest.raises(TypeError, match="int"):
        image_key(3)


def test_palettes_count():
    a = picture().convert("P")
    b = a.copy()
    b.putpalette(list(reversed(a.getpalette())))
    assert image_key(a) != image_key(b)


def key(*steps, like=None):
    return transform_key(T.Compose([*steps, T.ToTensor()]), picture() if like is None else like)


def test_transforms_that_differ_a_little_differ():
    resize, crop = T.Resize((8, 8)), T.CenterCrop(8)
    keys = [key(resize)[0], key(T.Resize(8), crop)[0], key(T.Resize((8, 9)))[0],
            key(T.Resize((8, 8), T.InterpolationMode.BICUBIC))[0]]  # fmt: skip
    close = [
        transform_key(
            T.Compose([resize, T.ToTensor(), T.Normalize([m] * 3, [0.5] * 3)]), picture()
        )[0]
        for m in (0.48501, 0.48502)  # printed alike
    ]
    assert len({*keys, *close}) == 6
    assert key(T.Resize((8, 8)))[0] == keys[0]


@pytest.mark.parametrize(
    "step",
    [
        T.RandomCrop(8),
        T.RandomHorizontalFlip(),
        T.RandomApply([T.Grayscale(3)], p=0.001),
        T.ColorJitter(0.1),
        T.Lambda(lambda i: i.rotate(float(torch.rand(1)) * 90)),
        T.Lambda(lambda i: i.rotate(np.random.rand() * 90)),
        T.Compose([T.Compose([T.RandomGrayscale(0.0001)])]),
    ],
)
def test_random_transforms_are_found_and_still_have_one_key(step):
    first = key(T.Resize((16, 16)), step)
    assert first[1] and key(T.Resize((16, 16)), step) == first


def test_a_transform_has_one_key_for_pictures_of_all_sizes():
    step = T.Compose([T.Resize((8, 8)), T.ToTensor()])
    sizes = ((20, 30), (8, 8), (100, 50))
    assert len({transform_key(step, picture(size=size)) for size in sizes}) == 1
    assert transform_key(step, picture().convert("L")) != transform_key(step, picture())


def test_fixed_transforms_are_not_random():
    for steps in ([T.Resize(8)], [T.Grayscale(3)], [T.Lambda(lambda i: i.rotate(30))]):
        assert not key(*steps)[1]
    tensor = torch.rand(3, 5, 5)
    assert not transform_key(lambda x: x, tensor)[1]
    assert transform_key(lambda x: x, tensor)[0] != transform_key(lambda x: 2 * x, tensor)[0]
