"""Models trained by the authors' code: their files, one per task, read as a ToscaNet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tosca_avalanche.backbones import FrozenBackbone
from tosca_avalanche.errors import ImportedModelError
from tosca_avalanche.modules.luca import LuCA
from tosca_avalanche.modules.tosca_net import ToscaNet

SUFFIXES = (".pt", ".pth", ".bin")
KEYS = {
    "W1": "adapter.0.weight",
    "b1": "adapter.0.bias",
    "W2": "adapter.2.weight",
    "b2": "adapter.2.bias",
    "ln.weight": "norm.weight",
    "ln.bias": "norm.bias",
    "V1": "calibrator.0.weight",
    "V2": "calibrator.2.weight",
    "rows": "classifier.weight",
    "sigma": "classifier.sigma",
}
"""Our name of each tensor and where it lies in a task's file."""


def from_official(
    folder: str | Path,
    backbone: FrozenBackbone,
    *,
    keys: Mapping[str, str] | None = None,
    rows: str = "seen",
    class_order: Sequence[int] | None = None,
    ignore: Sequence[str] = (),
    **settings: Any,
) -> ToscaNet:
    """Return the net whose tasks lie in a folder, one file each, as the authors' code keeps them.

    The layout. A file's task is the last number in its name (``task_0.pth``, ``task_1.pth``,
    ...), counted from 0 or from 1 without a gap. It holds a dictionary of state dicts,
    or one with their keys joined by dots (d the width, r the bottleneck, C_t the classes
    seen up to task t)::

        adapter      0.weight [r, d], 0.bias [r], 2.weight [d, r], 2.bias [d]
        calibrator   0.weight [r, d], 2.weight [d, r]
        norm         weight [d], bias [d]
        classifier   weight [C_t, d], sigma [] or [1]

    that is: linear, GELU, linear; linear, ReLU, linear, sigmoid; LayerNorm; the cosine
    head. The authors score every module with the newest head, so rows and sigma are those
    of the last file; what its number of rows grew by are the task's classes. This is read
    from the description of TOSCA (TMLR 2026), not from a published file: where yours has
    other names, say so with ``keys``.

    Read with ``weights_only=True``: no object in a file is ever made. Nothing of the
    backbone is in these files; give the one that they were trained on.

    :param folder: where the files are; other files than .pt, .pth and .bin don't count.
    :param keys: our name (of :data:`KEYS`) to the dotted name in your files, where it is
        another than :data:`KEYS` says.
    :param rows: "seen" where a file's classifier has all rows so far, "own" where it has
        those of its task alone.
    :param class_order: label of each row, oldest first; by default 0, 1, 2, ..., as the
        authors renumber them.
    :param ignore: beginnings of dotted names that may be left over.
    :param settings: of :class:`ToscaNet`: ``selection``, and ``norm`` and ``flow`` where the
        files come from a variant. The bottleneck is the files'.
    :raises ImportedModelError: a missing task number, a missing, unknown or unfitting
        tensor, a file that is no dictionary of tensors, each by name.

    :return: the net, all modules frozen, in evaluation mode.
    """
    if rows not in ("seen", "own"):
        raise ImportedModelError(f"rows={rows!r} is unknown; choose 'seen' or 'own'")
    names = {**KEYS, **(keys or {})}
    unknown = sorted(names.keys() - KEYS.keys())
    if unknown:
        raise ImportedModelError(f"keys: {unknown[0]!r} is none of our names {tuple(KEYS)}")
    tasks = [(path, _read(path)) for path in _files(Path(folder))]
    variant = {k: settings[k] for k in ("norm", "flow") if k in settings}
    wanted = [*dict(LuCA(2, 1, **variant).named_parameters()), "rows", "sigma"]
    names = {k: names[k] for k in wanted}
    for path, tensors in tasks:
        _check_names(path, tensors, names, tuple(ignore))

    first_path, first = tasks[0]
    narrow = "W1" if "W1" in names else "V1"
    if first[names[narrow]].dim() != 2:
        raise _misshapen(first_path, names[narrow], first[names[narrow]], "[r, d]")
    bottleneck = len(first[names[narrow]])
    net = ToscaNet(backbone, bottleneck=bottleneck, **settings)
    if net.routed:
        raise ImportedModelError(
            f"selection={net.selection!r} needs statistics of training features, which these files "
            f"don't have; choose another rule"
        )
    counts = _check_shapes(tasks, names, LuCA(backbone.embed_dim, bottleneck, **variant), rows)
    order = [*range(sum(counts))] if class_order is None else [int(c) for c in class_order]
    if len(order) != sum(counts) or len(set(order)) != len(order):
        raise ImportedModelError(
            f"class_order needs {sum(counts)} distinct labels, one per row, got {len(order)} of "
            f"which {len(set(order))} are distinct"
        )
    every = tasks[-1][1][names["rows"]]
    if rows == "own":
        every = torch.cat([tensors[names["rows"]] for _, tensors in tasks])

    loaded: dict[str, Tensor] = {"head.sigma": tasks[-1][1][names["sigma"]].reshape(())}
    arranged, start = [], 0
    for t, ((_, tensors), n) in enumerate(zip(tasks, counts, strict=True)):
        labels = order[start : start + n]
        net.add_task(labels)
        # a net keeps a task's rows by increasing label
        own = sorted(range(n), key=labels.__getitem__)
        arranged.append(every[start : start + n][own])
        start += n
        for name in wanted[:-2]:
            loaded[f"bank.luca.{t}.{name}"] = tensors[names[name]]
    joined, frozen = torch.cat(arranged), len(net.head.frozen_rows)
    loaded["head.frozen_rows"], loaded["head.new_rows"] = joined[:frozen], joined[frozen:]
    left_over = net.load_state_dict(loaded, strict=False).unexpected_keys
    assert not left_over, left_over
    net.bank.freeze()
    return net.eval()


def _files(folder: Path) -> list[Path]:
    """Return the files of the tasks in their order, none missing and none twice."""
    if not folder.is_dir():
        raise ImportedModelError(f"{folder} is no folder; give the folder with one file per task")
    numbered: dict[int, Path] = {}
    for path in sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES):
        digits = re.findall(r"\d+", path.stem)
        if not digits:
            raise ImportedModelError(f"{path} has no task number in its name: task_0{path.suffix}")
        task = int(digits[-1])
        if task in numbered:
            raise ImportedModelError(f"{numbered[task]} and {path} are both task {task}")
        numbered[task] = path
    if not numbered:
        raise ImportedModelError(f"{folder} has no file that ends in {', '.join(SUFFIXES)}")
    first, last = min(0 if 0 in numbered else 1, *numbered), max(numbered)
    missing = [n for n in range(first, last + 1) if n not in numbered]
    if missing:
        raise ImportedModelError(
            f"{folder} has files up to task {last} and none for {', '.join(map(str, missing))}; "
            f"tasks count from 0 or from 1 without a gap"
        )
    return [numbered[n] for n in sorted(numbered)]


def _read(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by dotted name."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ImportedModelError(
            f"{path} can't be read as tensors alone ({type(error).__name__}: {error}); save state "
            f"dicts with torch.save, no modules"
        ) from error
    tensors = dict(_flat(found, "")) if isinstance(found, Mapping) else {}
    if not tensors:
        raise ImportedModelError(f"{path} holds no dictionary of tensors")
    return tensors


def _flat(value: Mapping[str, Any], prefix: str) -> list[tuple[str, Tensor]]:
    out = []
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            out += _flat(inner, f"{prefix}{key}.")
        elif isinstance(inner, Tensor):
            out.append((f"{prefix}{key}", inner))
    return out


def _check_names(
    path: Path, tensors: dict[str, Tensor], names: dict[str, str], ignore: tuple[str, ...]
) -> None:
    missing = [f"{theirs} (our {ours})" for ours, theirs in names.items() if theirs not in tensors]
    if missing:
        raise ImportedModelError(
            f"{path} lacks {', '.join(missing)}; it has {', '.join(tensors)}. Tell other names "
            f"with keys={{our name: name in the file}}"
        )
    extra = [k for k in tensors if k not in names.values() and not k.startswith(ignore or ("\0",))]
    if extra:
        raise ImportedModelError(
            f"{path} also has {', '.join(extra[:5])}, which this import would leave out; if that "
            f"is right, pass ignore={extra[:1]}"
        )


def _check_shapes(
    tasks: list[tuple[Path, dict[str, Tensor]]], names: dict[str, str], module: LuCA, rows: str
) -> list[int]:
    """Refuse tensors of other shapes; return the number of classes of each task."""
    counts, before = [], 0
    for path, tensors in tasks:
        for ours, parameter in module.named_parameters():
            found = tensors[names[ours]]
            if found.shape != parameter.shape:
                raise _misshapen(path, names[ours], found, str([*parameter.shape]))
        head, sigma = tensors[names["rows"]], tensors[names["sigma"]]
        if head.dim() != 2 or head.shape[1] != module.dim:
            raise _misshapen(path, names["rows"], head, f"[classes, {module.dim}]")
        if sigma.numel() != 1:
            raise _misshapen(path, names["sigma"], sigma, "[] or [1]")
        counts.append(len(head) - (before if rows == "seen" else 0))
        if counts[-1] < 1:
            raise ImportedModelError(
                f"{path}: {names['rows']} has {len(head)} rows after {before} of the task before; "
                f"a file has the rows of all classes so far, or pass rows='own'"
            )
        before = len(head)
    return counts


def _misshapen(path: Path, name: str, found: Tensor, wanted: str) -> ImportedModelError:
    return ImportedModelError(
        f"{path}: {name} has shape {[*found.shape]} instead of {wanted}; is this the backbone that "
        f"the files were trained on, and norm and flow as there?"
    )
