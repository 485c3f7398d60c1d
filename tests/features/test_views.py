"""Seeded views and extraction."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

from tests.conftest import TinyNet, blobs
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import BackboneError, TrainingError
from tosca_avalanche.features import SeededViews, feature_batches
from tosca_avalanche.modules import PrototypeNet


class Noisy(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return index + torch.rand(1), index


def test_a_view_depends_on_seed_view_and_image_alone():
    first = [SeededViews(Noisy(), 1, view=2)[i][0] for i in range(6)]
    loader = DataLoader(SeededViews(Noisy(), 1, view=2), batch_size=2, num_workers=2)
    assert torch.equal(torch.cat(first), torch.cat([x[:, 0] for x, _ in loader]))
    for other in (SeededViews(Noisy(), 1, view=3), SeededViews(Noisy(), 2, view=2)):
        assert not torch.equal(other[0][0], first[0])
    assert len({(v - i).item() for i, v in enumerate(first)}) == 6


def test_features_come_in_order_whatever_the_batch():
    backbone = load_backbone(TinyNet())
    data = blobs(3, 5, 0)
    z, y = (
        torch.cat(part) for part in zip(*feature_batches(backbone, data, batch_size=4), strict=True)
    )
    torch.testing.assert_close(z, backbone(data.tensors[0]))
    assert y.tolist() == data.targets


def test_the_global_random_state_is_left_alone():
    backbone = load_backbone(TinyNet())
    state = torch.get_rng_state()
    list(feature_batches(backbone, blobs(2, 2, 0)))
    assert torch.equal(state, torch.get_rng_state())


def test_an_image_with_a_nan_is_named():
    data = blobs(3, 5, 0)
    data.tensors[0][7, 0, 0, 0] = torch.nan
    with pytest.raises(TrainingError, match="image 7 "):
        list(feature_batches(load_backbone(TinyNet()), data, batch_size=4))


@pytest.mark.parametrize("precision", ["bfloat16"])
def test_autocast_on_the_real_backbone_gives_nearly_equal_features_and_the_same_answers(precision):
    full, half = (load_backbone("tiny_vit_64", precision=p) for p in ("float32", precision))
    data = load_digits()
    pictures = (data.images[:240] * 15.9).astype("uint8")
    x = torch.stack([full.transforms.eval(picture) for picture in pictures])
    z, other = full(x), half(x)
    assert other.dtype == torch.float32 and full.fingerprint != half.fingerprint
    assert not torch.equal(z, other)
    assert torch.nn.functional.cosine_similarity(z, other).min() > 0.99
    given = []
    for features in (z, other):
        net = PrototypeNet(full)
        net.add_task(range(10))
        net.learn(features[:120], torch.from_numpy(data.target[:120]))
        given.append(net.classify(features[120:]).argmax(1))
    assert (given[0] == given[1]).float().mean() >= 0.99
    assert (given[0] == torch.from_numpy(data.target[120:240])).float().mean() > 0.5
    with pytest.raises(BackboneError, match="precision='int8'"):
        load_backbone("tiny_vit_64", precision="int8")
