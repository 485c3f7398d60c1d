"""What all nets here share: a frozen backbone, the classes seen so far, and the outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.errors import TrainingError

# How far below an image's lowest seen logit an unseen class is put: its softmax
# underflows to exactly 0, and a loss on it stays finite.
UNSEEN_GAP = 1e4
MAX_LABEL = 1_000_000


class IncrementalNet(nn.Module):
    """Base of the nets: tasks are added one after another, classes grow, the backbone never moves.

    A net keeps one ROW per (task, class); a class that comes again in a later task has
    several rows, and its logit is the largest of them. Outputs are ``[B, width]`` with
    one column per label up to the largest seen, so that ``argmax`` is a label and any
    metric applies. Columns of labels never trained on lie ``1e4`` below the image's
    lowest seen logit: finite, and never chosen.

    Subclasses write ``build`` (make parts of a known width), ``grow`` (take one more
    task) and ``classify``.
    """

    _restoring = False
    _row_index: Tensor | None = None
    gives_probabilities = True
    """True where softmax of the outputs is what the method holds for the classes' probabilities."""

    def __init__(self, backbone: FrozenBackbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.task_classes: list[list[int]] = []
        self.classes: list[int] = []
        """Labels seen, in the order in which they came."""
        self.adapting = False
        """True while something in front of the features learns: mid-task, not between tasks."""
        self.passed_before = 0
        """Images passed before this net was restored."""
        self.images_trained = 0
        """Images passed so far through a transformer that was learning, in all epochs."""
        self.last_modules: Tensor | None = None
        """Module chosen for each image of the last evaluated batch, where there are modules."""

    @property
    def n_tasks(self) -> int:
        """Number of tasks added so far."""
        return len(self.task_classes)

    @property
    def row_labels(self) -> list[int]:
        """Label of each row, oldest first."""
        return [label for labels in self.task_classes for label in labels]

    @property
    def row_index(self) -> Tensor:
        """Position of each row's class among the seen classes [R]."""
        if self._row_index is None:
            self._row_index = self.positions(torch.tensor(self.row_labels))
        return self._row_index

    @property
    def device(self) -> torch.device:
        """Device of the net."""
        return self.backbone.device

    @property
    def extractors(self) -> list[FrozenBackbone]:
        """The frozen transformers whose features, side by side, are what ``classify`` takes."""
        return [self.backbone]

    @property
    def passes_per_image(self) -> int:
        """Passes through a transformer that a new image needs for its answer."""
        return len(self.extractors)

    @property
    def images_passed(self) -> int:
        """Images passed so far through all frozen transformers, repeated ones counted again."""
        own = {id(e): e for e in self.backbones()}.values()
        return self.passed_before + sum(e.images_passed for e in own)

    def backbones(self) -> list[FrozenBackbone]:
        """Return every frozen transformer of the net: the plain one and the extractors."""
        return [self.backbone, *self.extractors]

    def features(self, x: Tensor) -> Tensor:
        """Return the features [B, D] of images: those of all extractors, side by side."""
        parts = [extractor(x) for extractor in self.extractors]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def row_tasks(self) -> Tensor:
        """Return the task of each row [R]."""
        tasks = [t for t, labels in enumerate(self.task_classes) for _ in labels]
        return torch.tensor(tasks, device=self.device)

    def tasks_of(self, label: int) -> list[int]:
        """Tasks in which a label was trained on, oldest first."""
        return [t for t, labels in enumerate(self.task_classes) if label in labels]

    def positions(self, y: Tensor) -> Tensor:
        """Return the position of each label [B] among the seen classes."""
        position = {label: i for i, label in enumerate(self.classes)}
        return torch.tensor([position[int(label)] for label in y.tolist()], device=self.device)

    def trainable(self) -> list[nn.Parameter]:
        """Return the parameters that take gradients."""
        return [p for p in self.parameters() if p.requires_grad]

    def add_task(self, labels: list[int]) -> None:
        """Take one more task with these class labels (non-negative integers)."""
        labels = sorted(int(label) for label in labels)
        if not labels or len(set(labels)) < len(labels):
            raise ValueError(f"a task needs distinct class labels, got {labels}")
        if labels[0] < 0 or labels[-1] > MAX_LABEL:
            bad = labels[0] if labels[0] < 0 else labels[-1]
            raise ValueError(
                f"class label {bad} is outside 0..{MAX_LABEL}: outputs have one column per label; "
                f"map your labels to 0..C-1 first"
            )
        if self.adapting and self.n_tasks and not self._restoring:
            raise TrainingError(
                f"task {self.n_tasks - 1} was interrupted in training and is half learned: make a "
                f"new net, restore() the state() that was kept after the task before, and train "
                f"it again"
            )
        if not self.task_classes:
            self.build(self.backbone.embed_dim)
            self.to(self.device)
        self.grow(labels)
        self.task_classes.append(labels)
        known = set(self.classes)
        self.classes += [label for label in labels if label not in known]
        self._row_index = None

    def build(self, dim: int) -> None:
        """Make the parts whose shape depends on the feature width d."""
        raise NotImplementedError

    def grow(self, labels: list[int]) -> None:
        """Make room for one more task, on the device of the net."""
        raise NotImplementedError

    def end_task(self) -> None:
        """Do what is left to do when a task's images have all been seen; nothing by default."""

    def classify(self, z: Tensor, task_ids: Tensor | None = None) -> Tensor:
        """Return outputs [B, width] for features z [B, D], as :meth:`features` gives them."""
        raise NotImplementedError

    def forward(self, x: Tensor, task_ids: Tensor | None = None) -> Tensor:
        """Return outputs [B, width] for images x, each passed through each extractor once."""
        return self.classify(self.features(x), task_ids)

    def merge_rows(self, row_logits: Tensor) -> Tensor:
        """Turn logits per row [..., R] into logits per class [..., C], the largest of its rows."""
        classes = self.classes
        if len(classes) == row_logits.shape[-1]:
            return row_logits
        index = self.row_index.to(row_logits.device).expand(row_logits.shape)
        merged = row_logits.new_full((*row_logits.shape[:-1], len(classes)), -torch.inf)
        return merged.scatter_reduce(-1, index, row_logits, "amax")

    def to_outputs(self, class_logits: Tensor, allowed: list[int] | None = None) -> Tensor:
        """Spread logits per seen class [B, C] over label columns [B, width].

        :param allowed: only these labels keep their logits; all seen ones by default.
        """
        classes = self.classes
        if not classes:
            return class_logits.new_full((len(class_logits), 1), -UNSEEN_GAP)
        columns = torch.tensor(classes, device=class_logits.device)
        if allowed is not None:
            keep = torch.tensor([c in set(allowed) for c in classes], device=columns.device)
            columns, class_logits = columns[keep], class_logits[:, keep]
        return self._spread(class_logits, columns)

    def task_to_outputs(self, logits: Tensor) -> Tensor:
        """Spread logits [B, n] of the newest task's own rows over label columns [B, width]."""
        return self._spread(logits, torch.tensor(self.task_classes[-1], device=logits.device))

    def _spread(self, logits: Tensor, columns: Tensor) -> Tensor:
        out = unseen_floor(logits).repeat(1, max(self.classes) + 1)
        return out.index_copy(1, columns, logits)

    def tensors(self) -> dict[str, Tensor]:
        """Return what was learned by name, backbone left out: the net's own tensors, no copies."""
        return {k: v for k, v in self.state_dict().items() if not k.startswith("backbone.")}

    def rest(self) -> dict[str, Any]:
        """Return what was learned beside tensors, JSON-able."""
        passes = {"passed": self.images_passed, "trained": self.images_trained}
        return {"task_classes": [[*own] for own in self.task_classes], "passes": passes}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what was learned: copies of :meth:`tensors`, and :meth:`rest`."""
        copies = {k: v.cpu().contiguous().clone() for k, v in self.tensors().items()}
        return copies, self.rest()

    def take_shape(self, rest: dict[str, Any]) -> None:
        """Bring a net with its tasks added into the shape of the saved one; nothing by default."""

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave; the net must be new, with the same settings."""
        if self.n_tasks:
            raise ValueError(f"restore needs a new net; this one has learned {self.n_tasks} tasks")
        self._restoring = True
        for labels in rest["task_classes"]:
            self.add_task(labels)
        self.take_shape(rest)
        self._restoring = False
        own = self.tensors()
        if own.keys() != tensors.keys() or any(own[k].shape != tensors[k].shape for k in own):
            raise ValueError("the saved state has other tensors than this net: settings differ")
        self.load_state_dict(tensors, strict=False)
        self.passed_before = rest["passes"]["passed"]
        self.images_trained = rest["passes"]["trained"]


def unseen_floor(logits: Tensor) -> Tensor:
    """Return [B, 1]: a finite value far below each image's lowest logit."""
    return logits.detach().min(dim=1, keepdim=True).values - UNSEEN_GAP


def pad_outputs(outputs: Tensor, width: int) -> Tensor:
    """Widen outputs [B, w] to [B, width] with columns that are never chosen."""
    missing = width - outputs.shape[1]
    if missing <= 0:
        return outputs
    floor = outputs.detach().min(dim=1, keepdim=True).values
    return torch.cat([outputs, floor.repeat(1, missing)], dim=1)
