"""A net taken apart into what each task owns and what all share, and put together again."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.errors import ModelError
from tosca_avalanche.modules.tosca_net import ToscaNet

ROWS = "head.rows"
SETTINGS = tuple(
    name
    for name, p in inspect.signature(ToscaNet.__init__).parameters.items()
    if p.kind is inspect.Parameter.KEYWORD_ONLY
)


@dataclass
class Parts:
    """What was learned.

    :param settings: the net's keywords.
    :param tasks: tensors of each task, its head rows [classes, d] among them.
    :param shared: the other tensors, such as the head's scale.
    :param rest: what :meth:`ToscaNet.state` gives beside tensors.
    """

    settings: dict[str, Any]
    tasks: list[dict[str, Tensor]]
    shared: dict[str, Tensor]
    rest: dict[str, Any]


def take_apart(net: ToscaNet) -> Parts:
    """Return the parts of a net, its own tensors.

    What is kept of a class belongs to the task that had it first.
    """
    tensors, rest = net.tensors(), net.rest()
    tasks: list[dict[str, Tensor]] = [{} for _ in range(net.n_tasks)]
    shared = {}
    by_task, by_class = (
        re.compile(f"({'|'.join(re.escape(prefix) for prefix in prefixes)}){number}")
        for prefixes, number in ((net.task_parts, r"\.(\d+)\.(.+)"), (net.class_parts, r"(\d+)"))
    )
    first: dict[int, int] = {}
    for t, labels in enumerate(net.task_classes):
        first.update({label: t for label in labels if label not in first})
    if tasks:
        rows = torch.cat([tensors.pop("head.frozen_rows"), tensors.pop("head.new_rows")])
        for own, block in zip(tasks, rows.split([len(c) for c in net.task_classes]), strict=True):
            own[ROWS] = block
    for key, tensor in tensors.items():
        if found := by_task.fullmatch(key):
            tasks[int(found[2])][f"{found[1]}.{found[3]}"] = tensor
        elif found := by_class.fullmatch(key):
            tasks[first[net.classes[int(found[2])]]][key] = tensor
        else:
            shared[key] = tensor
    return Parts({name: getattr(net, name) for name in SETTINGS}, tasks, shared, rest)


def laid_out(net: ToscaNet) -> Parts:
    """Return the parts of a net as files have them: rows that tasks to come move are shared."""
    parts = take_apart(net)
    if net.old_rows == "trainable" and parts.tasks:
        parts.shared[ROWS] = torch.cat([own.pop(ROWS) for own in parts.tasks])
    return parts


def put_together(parts: Parts, backbone: FrozenBackbone) -> ToscaNet:
    """Return a net from its parts, all modules frozen, in evaluation mode."""
    net = ToscaNet(backbone, **parts.settings)
    tensors = dict(parts.shared)
    for t, own in enumerate(parts.tasks):
        for key, tensor in own.items():
            prefix = next((p for p in net.task_parts if key.startswith(p + ".")), None)
            if key.startswith(net.class_parts):
                tensors[key] = tensor
            elif prefix is not None:
                tensors[f"{prefix}.{t}{key[len(prefix) :]}"] = tensor
    if parts.tasks:
        rows = torch.cat([own[ROWS] for own in parts.tasks])
        new = len(rows) if net.old_rows == "trainable" else len(parts.tasks[-1][ROWS])
        tensors["head.frozen_rows"], tensors["head.new_rows"] = rows.split([len(rows) - new, new])
    net.restore(tensors, parts.rest)
    net.passed_before -= backbone.images_passed  # those of this object are counted there
    net.bank.freeze()
    return net.to(backbone.device).eval()


def snapshot(net: ToscaNet, labels: Iterable[int]) -> ToscaNet:
    """Return the net to go back to where learning a task of these labels fails.

    It shares with ``net`` all that such a task leaves as it is, and copies what is changed
    where it lies: its cost does not grow with the tasks.
    """
    changed = {id(tensor) for tensor in net.changed_by(labels)}
    others = [part for part in net.children() if part not in (net.backbone, net.bank)]
    values = [v for part in others for m in part.modules() for v in vars(m).values()]
    values += [v for m in others for v in m.state_dict(keep_vars=True).values()]
    shared: list[Any] = [v for v in values if isinstance(v, (Tensor, tuple))]
    shared = [v for v in shared if id(v) not in changed]
    shared += [net.backbone, *net.bank.luca, *net.bank.blocks]
    return copy.deepcopy(net, {id(one): one for one in shared})


def without_task(net: ToscaNet, t: int) -> ToscaNet:
    """Return a net without task t: without its module and rows, all others as they are.

    Classes that belong to t alone are gone; a class of several tasks keeps its other rows.
    The head's scale stays, except that without the newest task it is what it was before,
    where that is known: taking the newest task away then is the same as never having
    learned it. After an earlier one is taken away, later modules remain what they are,
    trained beside its rows.

    :raises ModelError: parts of all tasks together that can't be told apart.
    """
    parts = take_apart(net)
    mixed = [key for key in parts.shared if not key.startswith("head.")]
    if mixed:
        raise ModelError(
            f"task {t} can't be taken away: {mixed[0]!r} holds all tasks together "
            f"(selection={net.selection!r})"
        )
    sigmas = parts.rest["sigmas"]
    known = len(sigmas) == net.n_tasks
    del parts.tasks[t], parts.rest["task_classes"][t], sigmas[t : t + 1 if known else t]
    if not parts.tasks:
        parts.shared = {}
    elif known and t == net.n_tasks - 1:
        parts.shared["head.sigma"] = torch.tensor(sigmas[-1])
    return put_together(parts, net.backbone)
