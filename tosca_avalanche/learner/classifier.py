"""TOSCA as a classifier that learns task after task, without a training loop of one's own."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor, nn

from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import InputError, ModelError
from tosca_avalanche.features import FeatureData, FeatureStore
from tosca_avalanche.learner.explanation import Explanation, explanation
from tosca_avalanche.learner.extraction import features_of
from tosca_avalanche.learner.inputs import labelled, sources_of
from tosca_avalanche.learner.labels import Label, Labels
from tosca_avalanche.learner.parts import SETTINGS, snapshot, without_task
from tosca_avalanche.learner.recipe import EVAL_BATCH, Recipe, warn_of_one_class
from tosca_avalanche.learner.stored import Stored
from tosca_avalanche.modules.tosca_net import ToscaNet
from tosca_avalanche.uncertainty import answers, fit_temperature


class ToscaClassifier(Stored, ClassifierMixin, BaseEstimator):
    """TOSCA (TMLR 2026) in scikit-learn's form: one small module per task, chosen per image.

    ``ToscaClassifier("tiny_vit_64").add_task(images, labels).predict(images)``. The same
    data in the same order, settings and seed give the predictions of ``TOSCAStrategy``.

    Images are RGB, grey or RGBA, one or a batch, as paths, PIL images, uint8 or float
    arrays [H, W, C] or [N, H, W, C], tensors [C, H, W] or [N, C, H, W], lists of these, or
    a map-style data set of (image, label); floats lie in [0, 1]. One picture gives one
    answer in all these forms: the backbone's transform is done here. A two-dimensional
    float array is taken as features [N, d] of the backbone. Training also takes a folder
    ROOT/CLASS/IMAGE, without labels. Each image passes the backbone once: see ``store``.

    Labels are all str or all int and come back so, as arrays. A class that comes again in a
    later task gets one more head row; its score is the largest of its rows.

    :param backbone: a name for ``load_backbone``, a loaded backbone, or a module from images
        to [B, d].
    :param selection: rule that picks the module, see :class:`~tosca_avalanche.ToscaNet`;
        "oracle" is refused, since nobody tells the task of an image here.
    :param epochs: passes over a task's images, see
        :class:`~tosca_avalanche.learner.Recipe`, also for ``lr``, ``momentum``,
        ``weight_decay``, ``l1`` and ``sparsity``.
    :param batch_size: images per training step.
    :param seed: seed of initial values and shuffling.
    :param store: where features are kept, see :class:`~tosca_avalanche.features.FeatureStore`:
        a store, a folder, "default", or None for memory only.
    :param cache: False passes images each time and keeps nothing.
    :param device: where backbone and modules run.

    The other settings are the net's, see :class:`~tosca_avalanche.ToscaNet`.
    """

    def __init__(
        self,
        backbone: str | nn.Module = "tiny_vit_64",
        *,
        bottleneck: int | None = None,
        norm: str = "post",
        flow: str = "adapter-calibrator",
        first_init: str = "xavier",
        head_init: str = "uniform",
        old_rows: str = "frozen",
        ce_scope: str = "seen",
        scale_init: float = 1.0,
        selection: str = "entropy",
        rows: str = "prototype",
        projection: int = 2000,
        ridge_weight: float = 30.0,
        epochs: int = 20,
        batch_size: int = 48,
        lr: float = 0.025,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        l1: float = 5e-4,
        sparsity: str = "l1",
        seed: int = 0,
        store: FeatureStore | str | Path | None = "default",
        cache: bool = True,
        device: str | torch.device = "cpu",
    ) -> None:
        self.backbone = backbone
        self.bottleneck, self.norm, self.flow, self.first_init = bottleneck, norm, flow, first_init
        self.head_init, self.old_rows, self.ce_scope = head_init, old_rows, ce_scope
        self.scale_init, self.selection, self.seed = scale_init, selection, seed
        self.rows, self.projection, self.ridge_weight = rows, projection, ridge_weight
        self.epochs, self.batch_size, self.lr = epochs, batch_size, lr
        self.momentum, self.weight_decay = momentum, weight_decay
        self.l1, self.sparsity = l1, sparsity
        self.store, self.cache, self.device = store, cache, device
        self._mark = ""
        self._own_store: tuple[Any, FeatureStore] | None = None
        self._forget()

    def _forget(self) -> None:
        """Start anew with the present settings; wrong ones are refused here."""
        if self.selection == "oracle":
            raise ValueError(
                "ToscaClassifier: selection='oracle' needs the task of each image, which nobody "
                "tells here; choose another rule, or use ToscaNet with task_ids"
            )
        self._recipe()
        backbone = load_backbone(self.backbone).to(self.device)
        self.net = ToscaNet(backbone, **{name: getattr(self, name) for name in SETTINGS}).eval()
        self.labels = Labels()
        self.temperature = 1.0

    def _recipe(self) -> Recipe:
        return Recipe(**{field.name: getattr(self, field.name) for field in fields(Recipe)})

    @property
    def n_tasks(self) -> int:
        """Number of tasks learned."""
        return self.net.n_tasks

    @property
    def classes_(self) -> np.ndarray:
        """Labels learned, sorted; the columns of :meth:`predict_proba`."""
        return np.sort(self.labels.labels(self.net.classes))

    @property
    def class_names(self) -> list[str]:
        """Names of ``classes_``."""
        return [self.labels.name(label) for label in self.classes_.tolist()]

    @property
    def task_labels(self) -> list[list[Label]]:
        """Labels of each task."""
        return [self.labels.labels(own).tolist() for own in self.net.task_classes]

    def features(self, x: Any) -> Tensor:
        """Return features [N, d] of images in any accepted form, from the store where it has them.

        :raises InputError: another form, shape or range.
        """
        found = sources_of(x)
        if isinstance(found, Tensor):
            dim = self.net.backbone.embed_dim
            if found.shape[1] != dim or not torch.isfinite(found).all():
                what = f"shape {tuple(found.shape)}" if found.shape[1] != dim else "NaN or infinity"
                raise InputError(
                    f"a two-dimensional float array is taken as features [N, {dim}] of backbone "
                    f"{self.net.backbone.name!r}, this has {what}; images have a channel axis"
                )
            return found
        return features_of(self.net.backbone, found, self._feature_store(), EVAL_BATCH)

    def _feature_store(self) -> FeatureStore | None:
        """Return the store; one in memory outlives ``fit``."""
        if not self.cache or isinstance(self.store, FeatureStore):
            return self.store if self.cache else None  # type: ignore[return-value]
        if self._own_store is None or self._own_store[0] != self.store:
            self._own_store = (self.store, FeatureStore(self.store))
        return self._own_store[1]

    def add_task(self, images_or_features: Any, labels: Any = None, names: Any = None) -> Any:
        """Learn one more task; what was learned before is not touched, and its images not needed.

        An error or an interruption leaves the classifier as it was.

        :param images_or_features: a batch in any accepted form, or with ``labels=None`` a
            folder ROOT/CLASS/IMAGE or a data set of (image, label).
        :param labels: one label per image.
        :param names: what to call the classes where their labels don't say it: by label, or
            a list in the sorted order of the labels.
        :return: the classifier.
        :raises InputError: images or labels that can't be meant.
        """
        x, y = labelled(images_or_features, labels)
        if not len(y):
            raise InputError("a task needs at least one image, got none")
        grown = self.labels.plus(y, names)
        z = self.features(x)
        if len(z) != len(y):
            raise InputError(f"{len(z)} images but {len(y)} labels")
        if self.n_tasks == 0 or self.ce_scope == "task":
            warn_of_one_class(sorted(set(y)), self.n_tasks)
        numbers = grown.numbers(y)
        before = snapshot(self.net, numbers)
        try:
            self._recipe().learn(self.net, FeatureData(z, torch.tensor(numbers)))
        except BaseException:
            self.net = before
            raise
        self.labels = grown
        return self

    def remove_task(self, t: int) -> Any:
        """Forget task ``t``: its module, its rows, and the classes that it alone had.

        Taking away the newest task is the same as never having learned it. An earlier one
        leaves later modules as they are, trained beside its rows.

        :return: the classifier.
        """
        if not 0 <= t < self.n_tasks:
            raise InputError(f"there is no task {t}; tasks 0 to {self.n_tasks - 1} were learned")
        self.net = without_task(self.net, t)
        self.labels = self.labels.only(self.net.classes)
        return self

    def fit(self, X: Any, y: Any = None, names: Any = None) -> Any:
        """Forget everything and learn ``X`` as the first task, see :meth:`add_task`."""
        self._forget()
        return self.add_task(X, y, names)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, names: Any = None) -> Any:
        """Learn ``X`` as one more task, see :meth:`add_task`.

        :param classes: not needed and not used; scikit-learn's tools pass it.
        """
        return self.add_task(X, y, names)

    @torch.no_grad()
    def _outputs(self, x: Any) -> Tensor:
        """Return outputs [N, width] per number of the net, and keep nothing."""
        if not self.n_tasks:
            raise ModelError("nothing was learned yet: call fit or add_task first")
        z = self.features(x).to(self.net.device)
        outputs = [self.net.classify(part).cpu() for part in z.split(EVAL_BATCH)]
        return torch.cat(outputs) if outputs else torch.zeros(0, max(self.net.classes) + 1)

    def predict(self, X: Any, abstain: float | None = None) -> np.ndarray:
        """Return the label of each image [N]; one image gives an array of one.

        :param abstain: answer "unknown" (-1 where labels are int) for images whose entropy,
            divided by its largest possible value, is above this: 0 is sure, 1 all alike.
            It means something after :meth:`calibrate`.
        """
        found = answers(self.net, self._outputs(X), abstain=abstain, temperature=self.temperature)
        return self.labels.labels(found[0].tolist())

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities [N, C] over ``classes_``: the softmax of the module that answers."""
        columns = self.labels.numbers(self.classes_.tolist())
        logits = self._outputs(X)[:, columns].double() / self.temperature
        return torch.softmax(logits, dim=1).numpy()

    def calibrate(self, X: Any, y: Any = None) -> Any:
        """Fit the temperature of probabilities on images that were not trained on.

        It changes no answer, only how sure it is. Never take test images: see
        :func:`~tosca_avalanche.uncertainty.fit_temperature`.

        :return: the classifier.
        """
        x, wanted = labelled(X, y)
        classes = self.classes_.tolist()
        strange = sorted(set(wanted) - set(classes))
        if strange or not wanted:
            found_instead = strange[:5] if wanted else "none"
            raise InputError(f"calibrate needs images of learned classes, got {found_instead}")
        logits = self._outputs(x)[:, self.labels.numbers(classes)]
        places = torch.tensor([classes.index(label) for label in wanted])
        self.temperature = fit_temperature(logits, places)
        return self

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy on images and labels, see :meth:`add_task` for the forms.

        :param sample_weight: weight of each image; all alike by default.
        """
        x, wanted = labelled(X, y)
        if not wanted:
            raise InputError("the accuracy of no image is not defined")
        right = np.array([a == b for a, b in zip(self.predict(x).tolist(), wanted, strict=True)])
        return float(np.average(right, weights=sample_weight))

    def explain(self, image: Any, nearest: int = 5) -> Explanation:
        """Return why one image gets its answer.

        :param nearest: how many prototypes to name.
        """
        z = self.features(image)
        if len(z) != 1:
            raise InputError(f"explain takes one image, got {len(z)}")
        return explanation(self.net, self.labels, self._outputs(z)[0], z, nearest)
