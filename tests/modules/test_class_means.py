"""Prototypes against means written out."""

import pytest
import torch

from tosca_avalanche.modules import ClassMeans


def test_means_of_unequal_classes_over_uneven_batches():
    features = torch.randn(23, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([5, 9, 5, 5, 2, 9, 5] * 3 + [2, 5])
    means = ClassMeans(4)
    for part in range(0, 23, 5):
        means.update(features[part : part + 5], labels[part : part + 5])
    for label in (2, 5, 9):
        rows = [features[i].tolist() for i in range(23) if labels[i] == label]
        expected = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        assert means.mean([label])[0].tolist() == pytest.approx(expected, rel=1e-6)
    assert means.labels == [2, 5, 9]


def test_order_and_batches_do_not_matter():
    features = 1e3 * torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(500) % 3
    order = torch.randperm(500, generator=torch.Generator().manual_seed(1))
    a, b = ClassMeans(8), ClassMeans(8)
    a.update(features, labels)
    for part in order.split(7):
        b.update(features[part], labels[part])
    assert torch.equal(a.mean([0, 1, 2]), b.mean([0, 1, 2]))


def test_a_class_without_images_and_bad_shapes_are_named():
    means = ClassMeans(4)
    with pytest.raises(ValueError, match="class 3"):
        means.mean([3])
    with pytest.raises(ValueError, match=r"\[B, 4\]"):
        means.update(torch.zeros(2, 5), torch.zeros(2))
