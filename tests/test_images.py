"""Every kind of image becomes RGB, or is named."""

import numpy as np
import pytest
from PIL import Image

from tosca_avalanche.errors import StreamError
from tosca_avalanche.images import read_image


def saved(path, image, **options):
    image.save(path, **options)
    return np.asarray(read_image(path))


def test_grey_palette_and_one_bit(tmp_path):
    grey = Image.fromarray(np.arange(30, dtype=np.uint8).reshape(5, 6))
    for image in (grey, grey.convert("P"), grey.convert("1")):
        out = saved(tmp_path / "x.png", image)
        assert out.shape == (5, 6, 3)
        assert np.array_equal(out, np.asarray(image.convert("RGB")))


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    values = np.array([[0, 256, 32768, 65535]], dtype=np.uint16)
    out = saved(tmp_path / "x.png", Image.fromarray(values))
    assert out[0, :, 0].tolist() == [0, 1, 128, 255]
    out = saved(tmp_path / "x.tif", Image.fromarray(values.astype(np.int32)))
    assert out[0, :, 0].tolist() == [0, 1, 128, 255]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_is_white(tmp_path, mode):
    image = Image.new("RGBA", (2, 1), (200, 0, 0, 0))
    image.putpixel((1, 0), (40, 40, 40, 255))
    out = saved(tmp_path / "x.png", image.convert(mode))
    assert out[0].tolist() == [[255, 255, 255], [40, 40, 40]]


def test_a_transparent_palette_entry(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 0, 0] + [0] * 762)
    image.putpixel((1, 0), 1)
    out = saved(tmp_path / "x.png", image, transparency=1)
    assert out[0].tolist() == [[10, 20, 30], [255, 255, 255]]


@pytest.mark.parametrize("size", [(1, 1), (5000, 10)])
def test_odd_sizes(tmp_path, size):
    assert saved(tmp_path / "x.png", Image.new("RGB", size)).shape == (*size[::-1], 3)


def test_what_can_not_be_decoded_is_named(tmp_path):
    Image.new("F", (2, 2)).save(tmp_path / "float.tif")
    whole = tmp_path / "whole.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(whole)
    (tmp_path / "cut.jpg").write_bytes(whole.read_bytes()[:1500])
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("no image")
    for name, why in (("float.tif", "floating-point"), ("cut.jpg", "truncated"),
                      ("empty.png", "cannot identify"), ("text.png", "cannot identify"),
                      ("gone.png", "No such file")):  # fmt: skip
        with pytest.raises(StreamError, match=rf"{name} can't be decoded .*{why}"):
            read_image(tmp_path / name)
