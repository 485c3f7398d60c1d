"""Fashion-MNIST from idx files in miniature."""

import gzip
import struct

import numpy as np
import pytest

from tosca_avalanche.benchmarks import fashion_mnist
from tosca_avalanche.benchmarks.fashion_mnist import FILES
from tosca_avalanche.errors import StreamError


def idx(array):
    header = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write(folder, zipped):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for n, (images, labels) in zip((30, 20), FILES.values(), strict=True):
        for name, array in (
            (images, rng.integers(0, 256, (n, 28, 28))),
            (labels, np.arange(n) % 10),
        ):
            raw = idx(array)
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(raw))
            else:
                (folder / name).write_bytes(raw)
    return folder


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", [".", "FashionMNIST/raw"])
def test_idx_files(tmp_path, zipped, place):
    write(tmp_path / "fm" / place, zipped)
    benchmark = fashion_mnist(str(tmp_path / "fm"), download=False, class_order_seed=None)
    assert [len(e.dataset) for e in benchmark.train_stream] == [6] * 5
    assert [len(e.dataset) for e in benchmark.test_stream] == [4] * 5
    assert benchmark.class_names[0] == "T-shirt/top"


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(StreamError, match=r"not in .*; expected the four files"):
        fashion_mnist(str(tmp_path), download=False)
    folder = write(tmp_path / "bad", zipped=False)
    labels = folder / FILES["train"][1]
    for content in (b"", b"\0\0\x08\x01", labels.read_bytes()[:-3], b"PK\x03\x04" + bytes(40)):
        labels.write_bytes(content)
        with pytest.raises(StreamError, match=r"train-labels-idx1-ubyte is no idx file"):
            fashion_mnist(str(folder), download=False)


def test_files_that_do_not_belong_together(tmp_path):
    folder = write(tmp_path / "bad", zipped=False)
    (folder / FILES["test"][1]).write_bytes(idx(np.arange(19) % 10))
    with pytest.raises(StreamError, match=r"holds 20 images, .* 19 labels"):
        fashion_mnist(str(folder), download=False)
    (folder / FILES["test"][1]).write_bytes(idx(np.arange(20)))
    with pytest.raises(StreamError, match=r"labels up to 19"):
        fashion_mnist(str(folder), download=False)
