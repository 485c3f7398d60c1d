"""A model as a folder: one file per task, and a manifest that is written last.

``MODEL/model.json`` names every other file with its SHA-256; ``task-HASH.safetensors`` is
what one task learned (its module, its prototypes, its classes' products for the router),
``shared-HASH.safetensors`` what all tasks share. Files are called after their content, so
that adding a task rewrites none, but that of a class that comes again to a router, and a
crash at any point leaves the old model whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from tosca_avalanche.backbones import FrozenBackbone
from tosca_avalanche.errors import ModelError
from tosca_avalanche.files import SEAL, atomic_write, locked, seal_is_broken, sealed, write_json
from tosca_avalanche.learner.labels import Labels
from tosca_avalanche.learner.named import backbone_of
from tosca_avalanche.learner.parts import ROWS, SETTINGS, Parts, laid_out, put_together
from tosca_avalanche.learner.recipe import Recipe
from tosca_avalanche.learner.written import Written
from tosca_avalanche.modules.tosca_net import ToscaNet
from tosca_avalanche.version import __version__

MANIFEST = "model.json"
FORMAT = "tosca-avalanche model"
VERSION = 1
_WRITTEN = Written()
_KEYS = ("backbone", "settings", "recipe", "labels", "tasks", "shared", "rest")
_FILE = re.compile(r"(task|shared)-[0-9a-f]{16}\.safetensors")
_STALE = re.compile(r"\.(task|shared|model).*\.tmp")


@dataclass
class Saved:
    """A model as it lies in a folder.

    :param net: the net.
    :param recipe: settings of its training.
    :param labels: the user's labels.
    :param mark: SHA-256 of the manifest it came from: tells whether another one wrote since.
    :param temperature: of its probabilities.
    """

    net: ToscaNet
    recipe: Recipe
    labels: Labels
    mark: str = ""
    temperature: float = 1.0


def write_model(folder: str | Path, model: Saved, overwrite: bool = False) -> str:
    """Write a model into its folder and return the mark of the new manifest.

    :param overwrite: replace whatever model is there.
    :raises ModelError: the folder holds another model, or a newer state of this one.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock"):
            path = folder / MANIFEST
            old = path.read_bytes() if path.exists() and not overwrite else b""
            if old and _sha256(old) != model.mark:
                raise ModelError(
                    f"{folder} holds another model, or this one with changes that another process "
                    f"saved meanwhile; choose another folder, load it again, or pass "
                    f"overwrite=True to replace it"
                )
            manifest = _manifest(folder, model, _entries(json.loads(old)) if old else [])
            write_json(path, sealed(manifest))
            wanted = {entry["file"] for entry in _entries(manifest)}
            for file in folder.iterdir():
                if _STALE.fullmatch(file.name) or (
                    _FILE.fullmatch(file.name) and file.name not in wanted
                ):
                    file.unlink(missing_ok=True)
            return _sha256(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{folder} can't be written ({error}); the old model is intact") from error


def _entries(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [*manifest["tasks"], manifest["shared"]]


def _manifest(folder: Path, model: Saved, old: list[dict[str, Any]]) -> dict[str, Any]:
    """Write the files that are not there yet; return the manifest that names them.

    :param old: entries of the manifest that is there: their files are not read again, for
        loading does.
    """
    net, parts = model.net, laid_out(model.net)
    names = {path.name for path in folder.iterdir()}
    there = {e["sha256"]: e["file"] for e in old if e["file"] in names}
    tasks = []
    for luca, tensors, numbers in zip(net.bank.luca, parts.tasks, net.task_classes, strict=True):
        digest = _WRITTEN.digest(luca, tensors)
        if digest in there:
            entry = {"file": there[digest], "sha256": digest}
        else:
            entry = _write_tensors(folder, "task", tensors, there)
            _WRITTEN.remember(luca, tensors, entry["sha256"])
        tasks.append({**entry, "classes": [model.labels.by_number[n] for n in numbers]})
    backbone = net.backbone
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "written_by": f"tosca_avalanche {__version__}",
        "backbone": {
            "name": backbone.name,
            "fingerprint": backbone.fingerprint,
            "transform": backbone.transforms.preset,
            "precision": backbone.precision,
        },
        "settings": parts.settings,
        "recipe": asdict(model.recipe),
        "labels": [
            {"number": number, "label": label, "name": model.labels.name(label)}
            for number, label in model.labels.by_number.items()
        ],
        "tasks": tasks,
        "shared": _write_tensors(folder, "shared", parts.shared, there),
        "rest": parts.rest,
        "temperature": model.temperature,
    }


def _write_tensors(
    folder: Path, kind: str, tensors: dict[str, Tensor], there: dict[str, str]
) -> dict[str, str]:
    data = save({key: tensor.cpu().contiguous().clone() for key, tensor in tensors.items()})
    digest = _sha256(data)
    path = folder / f"{kind}-{digest[:16]}.safetensors"
    if digest in there:
        return {"file": there[digest], "sha256": digest}
    if not path.exists() or _sha256(path.read_bytes()) != digest:
        atomic_write(path, lambda temporary: _write(temporary, data))
    return {"file": path.name, "sha256": digest}


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def read_model(
    folder: str | Path,
    backbone: FrozenBackbone | None = None,
    *,
    weights: str | Path | None = None,
    device: Any = "cpu",
) -> Saved:
    """Read a model from its folder.

    :param backbone: the backbone that the model was learned on; by default the one that
        the manifest names.
    :param weights: file of the named backbone's weights, where it had one.
    :raises ModelError: no model, a newer format, a file that is missing or altered, or
        another backbone.
    """
    folder = Path(folder)
    try:
        return _read_model(folder, backbone, weights, device)
    except ModelError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError(
            f"{folder / MANIFEST} does not describe a model ({type(error).__name__}: {error}); put "
            f"it back from a copy"
        ) from error


def _read_model(
    folder: Path, backbone: FrozenBackbone | None, weights: str | Path | None, device: Any
) -> Saved:
    while True:
        manifest, mark = read_manifest(folder)
        try:
            tasks = [_read_tensors(folder, entry) for entry in manifest["tasks"]]
            shared = _read_tensors(folder, manifest["shared"])
            break
        except FileNotFoundError as error:
            if read_manifest(folder)[1] == mark:  # else another process wrote meanwhile
                raise ModelError(
                    f"{error.filename} is missing, and {folder / MANIFEST} names it; put the file "
                    f"back from a copy of the model"
                ) from error
    read = [set(own) for own in tasks]
    if ROWS in shared:
        sizes = [len(entry["classes"]) for entry in manifest["tasks"]]
        for own, rows in zip(tasks, shared.pop(ROWS).split(sizes), strict=True):
            own[ROWS] = rows
    settings = _known("settings", manifest["settings"], SETTINGS, folder)
    recipe = _known("recipe", manifest["recipe"], [f.name for f in fields(Recipe)], folder)
    if seal_is_broken(manifest):
        raise ModelError(
            f"{folder / MANIFEST} was altered or damaged: its {SEAL} does not fit; put it back "
            f"from a copy of the model, or, where the change was meant, take the {SEAL} out"
        )
    if backbone is None:
        backbone = backbone_of(manifest["backbone"], weights, folder)
    backbone.to(device)
    if backbone.fingerprint != manifest["backbone"]["fingerprint"]:
        raise ModelError(
            f"{folder} was learned on backbone {manifest['backbone']['name']!r} with fingerprint "
            f"{manifest['backbone']['fingerprint'][:12]}, this is {backbone.name!r} with "
            f"{backbone.fingerprint[:12]}: other weights, architecture or transform. Pass the "
            f"same backbone"
        )
    entries = manifest["labels"]
    names = {e["label"]: e["name"] for e in entries if e["name"] != str(e["label"])}
    labels = Labels({e["number"]: e["label"] for e in entries}, names)
    net = put_together(Parts(settings, tasks, shared, manifest["rest"]), backbone)
    for luca, own, keys, entry in zip(
        net.bank.luca, laid_out(net).tasks, read, manifest["tasks"], strict=True
    ):
        if own.keys() == keys:
            _WRITTEN.remember(luca, own, entry["sha256"])
    return Saved(net, Recipe(**recipe), labels, mark, manifest.get("temperature", 1.0))


def read_manifest(folder: str | Path) -> tuple[dict[str, Any], str]:
    """Return a model's manifest and its mark.

    :raises ModelError: no model, a damaged manifest, or a newer format version.
    """
    path = Path(folder) / MANIFEST
    try:
        data = path.read_bytes()
        manifest = json.loads(data)
        form, version = manifest["format"], manifest["format_version"]
    except OSError as error:
        raise ModelError(f"{folder} holds no model: there is no {MANIFEST} ({error})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path} is no manifest of a model ({error})") from error
    if form != FORMAT or not isinstance(version, int):
        raise ModelError(f"{path} is no manifest of a model: its format is {form!r} {version!r}")
    if version > VERSION:
        raise ModelError(
            f"{path} has format version {version}, this tosca_avalanche {__version__} reads up to "
            f"{VERSION}; install a newer one (it was written by {manifest.get('written_by')})"
        )
    missing = [key for key in _KEYS if key not in manifest]
    if missing:
        raise ModelError(f"{path} is damaged: it has no {missing[0]!r}; put it back from a copy")
    return manifest, _sha256(data)


@contextmanager
def editing(folder: str | Path) -> Iterator[None]:
    """Hold a model for a change that takes long: a second process waits, and then reads the new.

    Readers are not held up, and a process that dies leaves no lock.
    """
    read_manifest(folder)
    with locked(Path(folder) / ".editing"):
        yield


def _read_tensors(folder: Path, entry: dict[str, str]) -> dict[str, Tensor]:
    if not _FILE.fullmatch(entry["file"]):
        raise ModelError(
            f"{folder / MANIFEST} names {entry['file']!r}, which is no file of a model"
        )
    path = folder / entry["file"]
    data = path.read_bytes()
    if _sha256(data) != entry["sha256"]:
        raise ModelError(
            f"{path} was altered or damaged: its SHA-256 is not the one that {MANIFEST} gives; put "
            f"it back from a copy of the model"
        )
    return load(data)


def _known(what: str, found: dict[str, Any], known: Any, folder: Path) -> dict[str, Any]:
    unknown = [key for key in found if key not in known]
    if unknown:
        raise ModelError(
            f"{folder / MANIFEST} has {what} {unknown[0]!r}, which this tosca_avalanche "
            f"{__version__} does not know; install the one that wrote it"
        )
    return found


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
