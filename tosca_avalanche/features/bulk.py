"""Features of all images below a folder, by several processes into one store."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import StoreError, StreamError, ToscaError
from tosca_avalanche.features.extract import eval_space, pass_missing
from tosca_avalanche.features.identity import source_key
from tosca_avalanche.features.store import FeatureSpace, FeatureStore
from tosca_avalanche.files import read_json, write_json
from tosca_avalanche.images import bad_images, images_below, read_image

CHUNK = 1024
FRESH_SECONDS = 180.0


@dataclass
class Job:
    """What every worker of one extraction does.

    :param backbone: arguments of ``load_backbone``.
    :param store: folder of the store; "default" as in :class:`FeatureStore`.
    :param skip_bad: leave out files that can't be decoded, instead of stopping at the first.
    """

    backbone: dict[str, Any]
    store: str = "default"
    dtype: str = "float32"
    device: str = "cpu"
    batch_size: int = 64
    num_workers: int = 0
    skip_bad: bool = False

    def anywhere(self) -> Job:
        """Return the job with absolute paths: workers may have another folder and environment."""
        weights = self.backbone.get("weights")
        if weights is not None and Path(weights).exists():
            weights = str(Path(weights).resolve())
        store = FeatureStore(self.store).root
        assert store is not None  # extraction is for a store on disk
        return replace(
            self, backbone={**self.backbone, "weights": weights}, store=str(Path(store).resolve())
        )


@dataclass
class Tally:
    """Images done, those of them that had to pass, and files left out."""

    done: int = 0
    passed: int = 0
    bad: list[str] = field(default_factory=list)


class ImageFiles(Dataset):
    """Files as (transformed tensor, 0)."""

    def __init__(self, paths: list[Path], transform: Callable[[Any], Tensor]) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(read_image(self.paths[index])), 0


class Extractor:
    """A worker: the backbone in memory, images through it that the store lacks.

    :raises StoreError: the backbone's evaluation transform is random.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.backbone = load_backbone(**job.backbone)
        self.backbone.to(job.device)
        space = eval_space(self.backbone, FeatureStore(job.store, job.dtype))
        if space is None:
            raise StoreError(
                f"the evaluation transform of backbone {self.backbone.name!r} is random: an image "
                f"has no one feature that could be stored"
            )
        self.space: FeatureSpace = space

    def join_files(self) -> None:
        """Join the small files that workers left in the store."""
        with self.space.extraction():  # which does it at its end
            pass

    def work(self, paths: list[Path], advance: Callable[[int], Any] = lambda n: None) -> Tally:
        """Store the features of some files; what is stored already is not passed again.

        Without the store's lock, so that workers don't wait for each other: what they write
        are whole files of their own. An image that two of them have is passed twice, and stored
        as often.
        """
        bad: list[Path] = []
        while True:
            files = [p for p in paths if p not in bad]
            self.space.refresh()
            keys = [source_key(p, read_image) or b"" for p in files]
            missing = self.space.missing(keys)
            advance(0 if bad else len(files) - len(missing))
            data = ImageFiles(files, self.backbone.transforms.eval)
            before = self.backbone.images_passed
            try:
                pass_missing(
                    self.backbone, data, keys, missing, self.space,
                    self.job.batch_size, self.job.num_workers, advance,
                )  # fmt: skip
            except StreamError:
                found = bad_images(files) if self.job.skip_bad else []
                if not found:
                    raise
                bad += found
                continue
            passed = self.backbone.images_passed - before
            return Tally(len(files), passed, [str(p) for p in bad])

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Do a batch of Ray Data's, a column ``path``; return one row of counts."""
        tally = self.work([Path(str(p)) for p in batch["path"]])
        return {
            "done": np.array([tally.done]),
            "passed": np.array([tally.passed]),
            "bad": np.array(["\n".join(tally.bad)], dtype=object),
        }


def files_of(root: str | Path, shards: int = 1, shard: int = 0) -> list[Path]:
    """Return the image files below a folder, in any depth; of these every ``shards``-th.

    :raises ToscaError: no images, or no such shard.
    """
    if not 0 <= shard < shards:
        raise ToscaError(f"--shard {shard} of --shards {shards}: pass 0 to {shards - 1}")
    paths = images_below(Path(root).resolve())
    if not paths:
        raise ToscaError(f"{root} holds no images (hidden files are left out)")
    return paths[shard::shards]


def extract_shard(job: Job, root: str | Path, shards: int = 1, shard: int = 0) -> Tally:
    """Store the features of one shard of a folder's images; print rate and time left of all.

    Shards may run at once, on several machines that share the store's folder: each leaves a
    note there of how far it is, which the others read.
    """
    paths = files_of(root, shards, shard)
    worker, total = Extractor(job), Tally()
    notes = Notes(worker.space, shards, shard, len(paths))
    with tqdm(
        total=len(paths), desc=f"shard {shard + 1}/{shards}", unit="image", disable=None
    ) as bar:
        for start in range(0, len(paths), CHUNK):
            tally = worker.work(paths[start : start + CHUNK], bar.update)
            total.done += tally.done
            total.passed += tally.passed
            total.bad += tally.bad
            notes.write(total)
            print(notes.line(), flush=True)
    worker.join_files()
    return total


class Notes:
    """How far each shard of an extraction is, in files beside the features."""

    def __init__(self, space: FeatureSpace, shards: int, shard: int, images: int) -> None:
        assert space.folder is not None  # extraction is for a store on disk
        self.folder, self.shards, self.shard, self.images = space.folder, shards, shard, images
        self.start = time.time()

    def write(self, tally: Tally) -> None:
        """Say how far this shard is."""
        note = {
            "done": tally.done + len(tally.bad),
            "passed": tally.passed,
            "images": self.images,
            "seconds": time.time() - self.start,
            "at": time.time(),
        }
        write_json(self.folder / f".progress-{self.shards}-{self.shard}.json", note)

    def line(self) -> str:
        """Return progress, images/s and time left of all shards that have begun.

        A shard that said nothing for three minutes counts as stopped: its images are left over.
        """
        notes = [read_json(p) for p in self.folder.glob(f".progress-{self.shards}-*.json")]
        done, images = sum(n["done"] for n in notes), sum(n["images"] for n in notes)
        now = time.time()
        active = [n for n in notes if n["done"] < n["images"] and now - n["at"] < FRESH_SECONDS]
        rate = sum(n["passed"] / max(n["seconds"], 1e-9) for n in active)
        said = f"{len(notes)} of {self.shards} shards: {done:,} of {images:,} images"
        if rate:
            said += f", {rate:,.1f} images/s, {tqdm.format_interval((images - done) / rate)} left"
        return said


def extract_on_ray(
    job: Job, root: str | Path, workers: int | None = None, address: str | None = None
) -> Tally:
    """Store the features of a folder's images with Ray Data, a backbone in each actor.

    :param workers: actors; by default one per GPU, or per CPU where there is none. The store
        and the images must lie where all nodes see them.
    :param address: of a cluster; by default ``$RAY_ADDRESS``, or Ray on this machine alone.
    :raises ToscaError: Ray isn't installed.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ToscaError("Ray is not installed: pip install 'tosca_avalanche[ray]'") from error
    paths, job = files_of(root), job.anywhere()
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0)) if job.device != "cpu" else 0
    workers = workers or gpus or max(1, int(resources.get("CPU", 1)))
    batches = ray.data.from_items(
        [{"path": str(p)} for p in paths], override_num_blocks=max(1, -(-len(paths) // CHUNK))
    ).map_batches(
        Extractor,
        fn_constructor_args=(job,),
        batch_size=CHUNK,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_gpus=1 if gpus else 0,
        num_cpus=1,
    )
    total = Tally()
    with tqdm(total=len(paths), desc=f"{workers} workers", unit="image") as bar:
        for row in batches.iter_rows():
            total.done += int(row["done"])
            total.passed += int(row["passed"])
            bad = [line for line in str(row["bad"]).splitlines() if line]
            total.bad += bad
            bar.update(int(row["done"]) + len(bad))
    Extractor(replace(job, device="cpu")).join_files()
    return total
