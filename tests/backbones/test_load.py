"""Loading backbones: what is accepted, and what each refusal says."""

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from tests.conftest import TinyNet
from tosca_avalanche.backbones import FrozenBackbone, Transforms, load_backbone
from tosca_avalanche.errors import BackboneError

NAME = "test_vit.r160_in1k"  # timm's own tiny test model


def test_the_embedded_backbone_is_the_file():
    from importlib import resources

    from safetensors.torch import load_file

    backbone = load_backbone("tiny_vit_64")
    path = resources.files("tosca_avalanche.backbones") / "assets/tiny_vit_64.safetensors"
    stored = load_file(path)
    own = backbone.module.state_dict()
    assert own.keys() == stored.keys()
    assert all(torch.equal(own[k], stored[k].float()) for k in own)
    assert backbone.embed_dim == 192 and backbone.name == "tiny_vit_64"
    assert sum(p.numel() for p in backbone.parameters()) == 2_719_296


def test_its_feature_is_the_cls_token_after_the_last_norm():
    backbone = load_backbone("tiny_vit_64")
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    tokens = backbone.module.forward_features(x)  # [B, 65, d], normed
    assert torch.equal(backbone(x), tokens[:, 0])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("vit_base_patch16_224", "vit_base_patch16_224.augreg_in21k"),
        ("vit_base_patch16_224.augreg_in22k", "augreg_in22k"),
        ("vit_enormous", "neither"),
    ],
)
def test_names_that_are_refused(name, says):
    with pytest.raises(BackboneError, match=says):
        load_backbone(name)


def test_weights_that_can_not_be_fetched_are_never_random():
    with pytest.raises(BackboneError, match=r"could not be fetched.*weights=FILE"):
        load_backbone(NAME)


def test_random_weights_only_by_name_and_always_the_same():
    torch.manual_seed(1)
    a = load_backbone(NAME, weights="random")
    torch.manual_seed(2)
    b = load_backbone(NAME, weights="random")
    assert a.fingerprint == b.fingerprint and "random" in a.name
    assert load_backbone("tiny_vit_64", weights="random").fingerprint != (
        load_backbone("tiny_vit_64").fingerprint
    )


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
def test_local_weights(tmp_path, suffix):
    model = timm.create_model(NAME, pretrained=False)  # with its classifier, left over on loading
    path = tmp_path / f"w.{suffix}"
    if suffix == "pth":
        torch.save({"state_dict": model.state_dict()}, path)
    else:
        save_file(model.state_dict(), path)
    backbone = load_backbone(NAME, weights=path)
    x = torch.randn(2, 3, 160, 160)
    model.eval().reset_classifier(0)
    assert torch.equal(backbone(x), model(x).detach())
    assert "w." in backbone.name


class Opens:
    def __reduce__(self):
        return (open, ("pwned", "w"))


def test_files_that_do_not_fit(tmp_path):
    state = timm.create_model(NAME, pretrained=False, num_classes=0).state_dict()
    cases = {
        "other shapes": {**state, "cls_token": torch.zeros(1, 1, 7)},
        "1 tensors missing": {k: v for k, v in state.items() if k != "cls_token"},
        "1 unknown": {**state, "extra": torch.zeros(1)},
    }
    for says, bad in cases.items():
        save_file(bad, tmp_path / "bad.safetensors")
        with pytest.raises(BackboneError, match=says):
            load_backbone(NAME, weights=tmp_path / "bad.safetensors")
    (tmp_path / "noise.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(BackboneError, match=r"noise\.safetensors could not be read"):
        load_backbone(NAME, weights=tmp_path / "noise.safetensors")
    torch.save(Opens(), tmp_path / "object.pth")
    with pytest.raises(BackboneError, match=r"object\.pth could not be read"):
        load_backbone(NAME, weights=tmp_path / "object.pth")
    with pytest.raises(BackboneError, match=r"none\.pth does not exist"):
        load_backbone(NAME, weights=tmp_path / "none.pth")


def test_any_module_is_taken_and_a_loaded_backbone_passes():
    backbone = load_backbone(TinyNet())
    assert backbone.embed_dim == 32 and backbone.transforms.preset == "plain"
    assert load_backbone(backbone) is backbone
    with pytest.raises(BackboneError, match="weights= goes with a name"):
        load_backbone(TinyNet(), weights="x")
    with pytest.raises(BackboneError, match="loaded already"):
        load_backbone(backbone, transform="paper")


def test_transforms_by_name_or_object():
    own = Transforms(len, len, "mine", {"preset": "mine"})
    assert load_backbone(TinyNet(), transform=own).transforms is own
    assert load_backbone("tiny_vit_64", transform="paper").transforms.preset == "paper"
    with pytest.raises(BackboneError, match="'x'"):
        load_backbone("tiny_vit_64", transform="x")
    with pytest.raises(BackboneError, match="'timm'"):
        load_backbone(TinyNet(), transform="timm")


def test_modules_that_give_no_features_are_named():
    with pytest.raises(BackboneError, match=r"\[4, d\]"):
        load_backbone(nn.Flatten(0), embed_dim=1)(torch.zeros(4, 3, 2, 2))
    unknown = load_backbone(nn.Flatten())
    with pytest.raises(BackboneError, match="embed_dim="):
        _ = unknown.embed_dim
    assert unknown.probe(torch.zeros(3, 2, 2)) == unknown.embed_dim == 12
    assert isinstance(unknown, FrozenBackbone)
