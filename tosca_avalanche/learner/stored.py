"""Saving a classifier into a model folder, and loading it."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.features import FeatureStore
from tosca_avalanche.learner.folder import Saved, read_model, write_model
from tosca_avalanche.learner.labels import Labels
from tosca_avalanche.learner.parts import SETTINGS
from tosca_avalanche.learner.recipe import Recipe
from tosca_avalanche.modules.tosca_net import ToscaNet


class Stored:
    """What ``ToscaClassifier`` has of files: one folder per model, see ``learner.folder``."""

    net: ToscaNet
    labels: Labels
    temperature: float
    _mark: str

    def _recipe(self) -> Recipe:
        raise NotImplementedError

    def save(self, folder: str | Path, overwrite: bool = False) -> Any:
        """Write the model into a folder; files of tasks that lie there already stay as they are.

        :param overwrite: replace another model that the folder holds, and trust no file there.
        :return: the classifier.
        :raises ModelError: the folder holds another model, or can't be written.
        """
        model = Saved(self.net, self._recipe(), self.labels, self._mark, self.temperature)
        self._mark = write_model(folder, model, overwrite)
        return self

    def export_onnx(self, path: str | Path, **settings: Any) -> Any:
        """Write backbone, modules and selection as one ONNX file, see ``export_onnx``.

        Its outputs are logits: the temperature of :meth:`calibrate` is not part of it.
        """
        from tosca_avalanche.export import export_onnx  # the extra is asked for when it is used

        return export_onnx(self.net, path, **settings)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        backbone: nn.Module | None = None,
        *,
        weights: str | Path | None = None,
        store: FeatureStore | str | Path | None = "default",
        cache: bool = True,
        device: str | torch.device = "cpu",
    ) -> Any:
        """Return the classifier that :meth:`save` or ``TOSCAStrategy.save`` wrote.

        :param backbone: the backbone it was learned on, where that can't be loaded by name.
        :param weights: file of the named backbone's weights, where it had one.
        :raises ModelError: no model, a newer format, a file that is missing or altered,
            another backbone.
        """
        own = None if backbone is None else load_backbone(backbone)
        saved = read_model(folder, own, weights=weights, device=device)
        if saved.net.selection == "oracle":  # a ceiling for experiments, which nobody can serve
            warnings.warn(f"{folder} has selection='oracle'; 'entropy' is used", stacklevel=2)
            saved.net.selection = "entropy"
        settings: dict[str, Any] = {name: getattr(saved.net, name) for name in SETTINGS}
        settings |= asdict(saved.recipe)
        kept: dict[str, Any] = {"store": store, "cache": cache, "device": device}
        model = cls(saved.net.backbone, **settings, **kept)  # type: ignore[call-arg]
        model.net, model.labels, model._mark = saved.net, saved.labels, saved.mark
        model.temperature = saved.temperature
        return model
