"""Handwritten digits that come with scikit-learn: a stream that needs no download."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from avalanche.benchmarks import CLScenario
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.benchmarks.class_incremental import LabelledImages, as_is, class_incremental
from tosca_avalanche.benchmarks.registry import register_stream


@register_stream("digits")
def digits(
    transforms: Transforms | None = None,
    *,
    classes_per_task: int | Sequence[int] = 2,
    class_order_seed: int | None = 1993,
) -> CLScenario:
    """Return the stream: 10 classes, 1,347 training and 450 test images of 8 x 8 pixels.

    The split is fixed: a quarter of each class is for testing (scikit-learn's stratified
    split, random state 0). Five tasks of two classes by default.

    :param transforms: of the backbone; the paper's by default.
    :param classes_per_task: classes of each task, one number or a list.
    :param class_order_seed: seed of the class order; None for 0, 1, 2, ...
    """
    data = load_digits()
    images = np.round(data.images * (255 / 16)).astype(np.uint8)
    train, test = train_test_split(
        np.arange(len(images)), test_size=0.25, random_state=0, stratify=data.target
    )
    parts = [LabelledImages(images[i], data.target[i].tolist(), as_is) for i in (train, test)]
    names = [str(name) for name in data.target_names]
    return class_incremental(
        parts[0], parts[1], names, transforms, classes_per_task, None, class_order_seed
    )
