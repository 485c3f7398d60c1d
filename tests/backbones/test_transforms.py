"""Transform presets against what they are said to do."""

import numpy as np
import pytest
import torch
from PIL import Image

from tosca_avalanche.backbones import load_backbone


def picture(width=100, height=60, mode="RGB"):
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 255, (height, width, 3), np.uint8)).convert(mode)


def test_embedded_preset_is_the_cards():
    """RGB resized to 64 x 64 (bicubic), (x - 0.5) / 0.5."""
    image = picture()
    resized = np.asarray(image.resize((64, 64), Image.Resampling.BICUBIC), np.float32)
    expected = (torch.from_numpy(resized).permute(2, 0, 1) / 255 - 0.5) / 0.5
    out = load_backbone("tiny_vit_64").transforms.eval(image)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=0)


def test_paper_preset():
    """Resize(size * 256 / 224), centre crop, pixels in [0, 1] and no mean or std."""
    backbone = load_backbone(
        "vit_tiny_patch16_224.augreg_in21k", weights="random", transform="paper"
    )
    image = picture(300, 256)
    out = backbone.transforms.eval(image)  # 256 high already: the resize is the identity
    box = image.crop((38, 16, 262, 240))
    expected = torch.from_numpy(np.asarray(box, np.float32)).permute(2, 0, 1) / 255
    torch.testing.assert_close(out, expected)
    assert backbone.transforms.parameters["resize"] == 256


def test_timm_preset_is_the_models_own():
    backbone = load_backbone("vit_tiny_patch16_224.augreg_in21k", weights="random")
    parameters = backbone.transforms.parameters
    assert parameters["mean"] == [0.5] * 3 and parameters["crop_pct"] == 0.9
    out = backbone.transforms.eval(Image.new("RGB", (500, 400), (255, 0, 255)))
    assert out.shape == (3, 224, 224)
    assert out[0].min() == 1 and out[1].max() == -1


@pytest.mark.parametrize("transform", ["timm", "paper"])
def test_train_is_random_and_eval_is_not(transform):
    transforms = load_backbone("tiny_vit_64", transform=transform).transforms
    image = picture()
    assert torch.equal(transforms.eval(image), transforms.eval(image))
    assert not torch.equal(transforms.train(image), transforms.train(image))
    assert transforms.train(image).shape == transforms.eval(image).shape == (3, 64, 64)


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1", "CMYK", "I;16"])
def test_images_of_every_mode(mode):
    image = picture(mode="L").convert("I").convert("I;16") if mode == "I;16" else picture(mode=mode)
    assert load_backbone("tiny_vit_64").transforms.eval(image).shape == (3, 64, 64)


def test_arrays_and_what_is_no_image():
    transforms = load_backbone("tiny_vit_64").transforms
    grey = np.zeros((8, 8), np.uint8)
    assert transforms.eval(grey).shape == (3, 64, 64)
    with pytest.raises(TypeError, match="str"):
        transforms.eval("image.png")
