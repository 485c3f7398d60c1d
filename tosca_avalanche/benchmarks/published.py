"""What is published of each data set: counts, increments, where to get it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One data set of the paper's protocol.

    :param title: its name.
    :param classes: number of classes.
    :param train, test: number of images; None where no split is published.
    :param increment: classes per task (B0-IncK).
    :param layout: the expected tree.
    :param source: where to get it.
    """

    title: str
    classes: int
    train: int | None
    test: int | None
    increment: int
    layout: str
    source: str

    @property
    def hint(self) -> str:
        """The expected tree and where to get it."""
        return f"expected {self.layout}; get it from {self.source}"


_TREE = "ROOT/train/CLASS/IMAGE and ROOT/test/CLASS/IMAGE (or a tar of that)"
_PILOT = "the data links in the README of LAMDA-PILOT (github.com/LAMDA-CL/LAMDA-PILOT)"

PUBLISHED = {
    "cifar100": Published(
        "CIFAR-100", 100, 50_000, 10_000, 5,
        "ROOT/cifar-100-python/{train,test,meta}",
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    ),
    "cub200": Published(
        "CUB-200-2011", 200, 9_430, 2_358, 10,
        f"{_TREE}, or the original archive ROOT/CUB_200_2011/{{images.txt, "
        "train_test_split.txt, image_class_labels.txt, classes.txt, images/}",
        f"{_PILOT}, or https://www.vision.caltech.edu/datasets/cub_200_2011",
    ),
    "imagenet_r": Published(
        "ImageNet-R", 200, 24_000, 6_000, 20,
        f"{_TREE}, or one folder of wnids ROOT/n01443537/IMAGE",
        f"{_PILOT}, or https://github.com/hendrycks/imagenet-r",
    ),
    "imagenet_a": Published(
        "ImageNet-A", 200, 5_981, 1_519, 20,
        f"{_TREE}, or one folder of wnids ROOT/n01498041/IMAGE",
        f"{_PILOT}, or https://github.com/hendrycks/natural-adv-examples",
    ),
    "omnibenchmark": Published("OmniBenchmark", 300, 89_697, 5_985, 30, _TREE, _PILOT),
    "vtab": Published("VTAB", 50, 1_796, 8_619, 10, _TREE, _PILOT),
    "eurosat": Published(
        "EuroSAT", 10, None, None, 2,
        f"{_TREE}, or torchvision's ROOT/eurosat/2750/CLASS/IMAGE, or ROOT/2750/CLASS/IMAGE",
        "https://github.com/phelber/EuroSAT, or torchvision.datasets.EuroSAT(ROOT, download=True)",
    ),
}  # fmt: skip
TOTALS = {"eurosat": 27_000, "imagenet_r": 30_000, "imagenet_a": 7_500, "cub200": 11_788}
"""Images in all, where a split is ours or another."""
