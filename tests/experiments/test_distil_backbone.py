"""The distillation procedure, on tiny generated images and random teachers; no network."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file
from timm.models import VisionTransformer
from torch import Tensor

import tosca_avalanche
from experiments import distil_backbone as distil
from experiments.distil_backbone import Run
from tests.experiments.distillation import OPTIONS, TEACHER, one_thread, root, run
from tosca_avalanche.seeding import generator

__all__ = ["one_thread", "root"]  # fixtures


def record(out: Path) -> dict:
    return json.loads(out.with_suffix(".json").read_text())


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let Ctrl-C come at the start of the given step."""
    update = Run.update

    def interrupted(self: Run, *batch: Tensor) -> None:
        if self.step == step:
            signal.raise_signal(signal.SIGINT)
        update(self, *batch)

    monkeypatch.setattr(Run, "update", interrupted)


# ---- the whole run


def test_loss_goes_down_and_the_result_loads_strictly(root):
    first = record(run(root, "first", "--steps", "1"))
    state = torch.get_rng_state()
    out = run(root, "last", "--steps", "25")
    assert torch.equal(torch.get_rng_state(), state), "the global random state was touched"
    last = record(out)
    assert last["final_loss"] < first["final_loss"] - 0.1
    assert last["steps"] == 25
    assert last["teacher"] == TEACHER
    assert (last["images"], last["classes"]) == (24, 3)
    assert last["versions"]["timm"] == timm.__version__

    weights = load_file(out)
    assert {v.dtype for v in weights.values()} == {torch.float16}
    shape = {"img_size": 16, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 2}
    VisionTransformer(**shape, num_classes=0).load_state_dict(weights, strict=True)
    names = {f.name for f in root.parent.iterdir()}
    assert names == {"images", "first.json", "first.safetensors", "last.json", "last.safetensors"}


def test_the_defaults_are_the_cards_architecture():
    args = distil.parse(["--images", "x", "--teacher", TEACHER, "--out", "x.safetensors"])
    assets = Path(tosca_avalanche.__path__[0]) / "backbones" / "assets"
    card = load_file(assets / "tiny_vit_64.safetensors")
    student = Run(args, classes=200).backbone.state_dict()
    assert {k: v.shape for k, v in student.items()} == {k: v.shape for k, v in card.items()}


def test_equal_steps_and_seed_give_equal_bytes_and_another_seed_does_not(root):
    one, two = (run(root, name, "--steps", "4").read_bytes() for name in ("one", "two"))
    other = run(root, "three", "--steps", "4", "--seed", "1").read_bytes()
    assert one == two
    assert one != other


@pytest.mark.parametrize("step", [0, 3, 7])
def test_interrupt_and_resume_equal_an_uninterrupted_run(root, monkeypatch, step):
    whole = run(root, "whole", "--steps", "8").read_bytes()
    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        interrupt_at(patch, step)
        with pytest.raises(SystemExit, match=f"interrupted at step {step + 1}.*same command"):
            run(root, "parts", "--steps", "8")
    assert signal.getsignal(signal.SIGINT) is handler
    partial = root.parent / "parts.partial.safetensors"
    assert json.loads(partial.with_suffix(".json").read_text())["steps"] == step + 1
    assert not (root.parent / "parts.safetensors").exists()

    steps: list[int] = []
    update = Run.update
    monkeypatch.setattr(Run, "update", lambda r, *b: (steps.append(r.step), update(r, *b)))
    assert run(root, "parts", "--steps", "8").read_bytes() == whole
    assert steps == list(range(step + 1, 8)), "the resumed run started over"
    assert not list(root.parent.glob("*.partial.*"))


def test_resuming_with_other_settings_or_images_is_refused(root, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 1)
        with pytest.raises(SystemExit, match="interrupted"):
            run(root, "parts", "--steps", "4")
    with pytest.raises(SystemExit, match=r"parts\.partial\.json had other settings; .*remove"):
        run(root, "parts", "--steps", "5")
    (root / "a" / "0.png").unlink()
    with pytest.raises(SystemExit, match="had other images; "):
        run(root, "parts", "--steps", "4")


def test_a_budget_in_minutes_ends_on_time(root):
    result = record(run(root, "timed", "--minutes", "0.01"))
    assert result["steps"] >= 1
    assert 0.6 <= result["seconds"] < 10


# ---- its parts


def test_targets_equal_a_literal_svd():
    draws = np.random.default_rng(1)
    x = draws.normal(size=(5000, 12)) @ draws.normal(size=(12, 12)) + draws.normal(size=12)
    x[:, 3] = 0.1  # never varies
    x = x.astype(np.float32)
    z = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    z[:, 3] = 0
    z /= np.where(z.std(0) > 0, z.std(0), 1)
    axes = np.linalg.svd(z, full_matrices=False)[2][:5]
    for axis in axes:
        axis *= np.sign(axis[np.abs(axis).argmax()])
    expected = z @ axes.T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)

    targets = distil.principal_targets(torch.from_numpy(x), 5)
    assert targets.dtype == torch.float32
    np.testing.assert_allclose(targets.numpy(), expected, atol=1e-6)


def test_schedule_warms_up_then_falls_as_a_cosine():
    # 100 steps at a peak of 8, the first 20 of them warm-up
    rates = [distil.learning_rate(s, s / 100, min(s, 20) / 100, 8.0, 20) for s in range(100)]
    assert rates[0] == pytest.approx(0.4)
    assert rates[9] == pytest.approx(4.0)
    assert rates[19] == pytest.approx(8.0)
    assert rates[20] == pytest.approx(8.0)
    assert rates[40] == pytest.approx(4 * (1 + math.sqrt(0.5)))  # a quarter of the cosine
    assert rates[60] == pytest.approx(4.0)
    assert rates[80] == pytest.approx(4 * (1 - math.sqrt(0.5)))
    assert distil.learning_rate(100, 1.0, 0.2, 8.0, 20) == pytest.approx(0.0)


def test_the_schedule_is_what_the_optimizer_gets(root, monkeypatch):
    rates: list[float] = []
    update = Run.update

    def noted(self: Run, *batch: Tensor) -> None:
        rates.append(self.optimizer.param_groups[0]["lr"])
        update(self, *batch)

    monkeypatch.setattr(Run, "update", noted)
    run(root, "rates", "--steps", "6")  # warm-up 2 of them, peak 0.01
    cosines = (math.sqrt(0.5), 0.0, -math.sqrt(0.5))
    assert rates == pytest.approx([0.005, 0.01, 0.01, *(0.005 * (1 + c) for c in cosines)])


def test_loss_equals_its_formula():
    options = ["--images", "x", "--teacher", TEACHER, "--out", "x.safetensors", *OPTIONS]
    student = Run(distil.parse(options), classes=3)
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(4, 3, 16, 16, generator=draws)
    targets, labels = torch.randn(4, 8, generator=draws), torch.tensor([0, 2, 1, 2])
    token = student.backbone.forward_features(x)[:, 0]
    guess = student.to_teacher(token)
    cosine = (guess * targets).sum(1) / guess.norm(dim=1) / targets.norm(dim=1)
    wanted = torch.full((4, 3), 0.1 / 3)
    wanted[torch.arange(4), labels] += 0.9
    entropy = -(wanted * student.to_label(token).log_softmax(1)).sum(1)
    expected = (1 - cosine).mean() + 0.2 * entropy.mean()
    torch.testing.assert_close(student(x, targets, labels), expected)


def test_updates_equal_clipped_adamw_by_hand(monkeypatch):
    options = ["--images", "x", "--teacher", TEACHER, "--out", "x.safetensors", *OPTIONS]
    args = distil.parse([*options, "--no-bf16"])
    forward = Run.forward
    # a steep first loss, so that clipping and the memory of the moments show
    monkeypatch.setattr(Run, "forward", lambda r, *b: forward(r, *b) * (1 if r.step else 1000))
    student, literal = Run(args, classes=3), Run(args, classes=3)
    draws = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (8, 3, 16, 16), generator=draws, dtype=torch.uint8)
    targets, labels = torch.randn(8, 8, generator=draws), torch.arange(8) % 3
    parameters = list(literal.parameters())
    means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    for step in (0, 1):
        student.optimizer.param_groups[0]["lr"] = 0.01
        student.update(images, targets, labels)
        literal.step = step
        views = distil.augment(images, generator(0, "augment", step))
        gradients = torch.autograd.grad(literal(views, targets, labels), parameters)
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        assert (norm > 1) == (step == 0)
        for p, g, mean, square in zip(parameters, gradients, means, squares, strict=True):
            g = g / max(norm, 1)
            mean.mul_(0.9).add_(0.1 * g)
            square.mul_(0.98).add_(0.02 * g**2)
            rise = mean / (1 - 0.9 ** (step + 1))
            size = (square / (1 - 0.98 ** (step + 1))).sqrt() + 1e-8
            p.data = p.data * (1 - 0.01 * 0.05) - 0.01 * rise / size
    for one, other in zip(student.parameters(), parameters, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=5e-4)


def test_each_pass_shows_every_image_once():
    passes = [
        torch.cat([distil.batch_indices(3 * p + s, 4, 14, 0) for s in range(3)]) for p in (0, 1)
    ]
    assert all(len(p) == len(p.unique()) == 12 for p in passes)
    assert not torch.equal(*passes)
    assert sorted(distil.batch_indices(5, 8, 3, 0).tolist()) == [0, 1, 2]  # fewer than a batch


def test_augmentation_stays_within_the_cards_limits():
    ramp = torch.arange(16, dtype=torch.uint8) * 4 + 98  # about grey, so that no value is clipped
    images = ramp.expand(400, 3, 16, 16)
    views = distil.augment(images, torch.Generator().manual_seed(0))
    assert views.shape == images.shape
    slopes = (views[..., 9] - views[..., 6]) / 3 / (2 * 4 / 255)  # 1 without any augmentation
    slopes = slopes.mean((1, 2))
    assert 0.65 * 0.8 - 1e-4 <= slopes.abs().min() < 0.6
    assert 1.1 < slopes.abs().max() <= 1.2 + 1e-4
    assert 150 < (slopes < 0).sum() < 250
    again = distil.augment(images, torch.Generator().manual_seed(0))
    assert torch.equal(views, again)

    grey = torch.full((400, 3, 16, 16), 128, dtype=torch.uint8)
    shift = distil.augment(grey, torch.Generator().manual_seed(0)) / 2 + 0.5 - 128 / 255
    assert (shift - shift[:, :1, :1, :1]).abs().max() < 1e-5
    assert 0.19 < shift.abs().max() <= 0.2 + 1e-5
