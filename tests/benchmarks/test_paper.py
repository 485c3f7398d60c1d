"""The paper's seven data sets in miniature, right and wrong."""

import pickle
import shutil

import numpy as np
import pytest
from torchvision.datasets import CIFAR100, cifar

from tests.benchmarks.trees import write_image, write_tree
from tosca_avalanche.benchmarks import (
    cifar100,
    classes_of,
    cub200,
    eurosat,
    imagenet_a,
    imagenet_r,
    omnibenchmark,
    vtab,
)
from tosca_avalanche.benchmarks.__main__ import main
from tosca_avalanche.benchmarks.published import PUBLISHED
from tosca_avalanche.errors import StreamError

FOLDERS = {"cub200": cub200, "imagenet_r": imagenet_r, "imagenet_a": imagenet_a,
           "omnibenchmark": omnibenchmark, "vtab": vtab, "eurosat": eurosat}  # fmt: skip
INCREMENTS = {"cifar100": 5, "cub200": 10, "imagenet_r": 20, "imagenet_a": 20,
              "omnibenchmark": 30, "vtab": 10, "eurosat": 2}  # fmt: skip


def names(n):
    return [f"n{i:08}" for i in range(n)]


def lengths(stream):
    return [len(e.dataset) for e in stream]


@pytest.mark.parametrize("name", FOLDERS)
def test_train_and_test_folders_and_the_papers_protocol(name, tmp_path):
    n, k = PUBLISHED[name].classes, INCREMENTS[name]
    benchmark = FOLDERS[name](str(write_tree(tmp_path / "data", names(n))))
    assert lengths(benchmark.train_stream) == [2 * k] * (n // k)
    assert lengths(benchmark.test_stream) == [k] * (n // k)
    order = np.random.RandomState(1993).permutation(n).tolist()
    assert benchmark.class_order == order
    assert benchmark.class_names == [names(n)[i] for i in order], "ids follow the sorted folders"
    assert classes_of(benchmark.train_stream[1]) == list(range(k, 2 * k))
    image, label = benchmark.test_stream[0].dataset[0][:2]
    assert image.shape == (3, 224, 224) and label in range(k), "the paper's transform by default"
    assert image.min() >= 0 and image.max() <= 1
    other = FOLDERS[name](str(tmp_path / "data"), increment=n // 2 - 1, init_classes=1,
                          class_order_seed=None)  # fmt: skip
    assert other.task_sizes == [1, n // 2 - 1, n // 2 - 1, 1]
    assert other.class_names == names(n)


@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_wrong_is_said_with_the_tree_the_source_and_what_was_found(name, tmp_path):
    known = PUBLISHED[name]
    with pytest.raises(StreamError, match=rf"{known.title}.*nowhere does not exist.*get it from"):
        FOLDERS[name](str(tmp_path / "nowhere"))
    (tmp_path / "wrong" / "pictures").mkdir(parents=True)
    with pytest.raises(StreamError, match=r"holds pictures; expected ROOT.*get it from"):
        FOLDERS[name](str(tmp_path / "wrong"))
    write_tree(tmp_path / "few", names(3))
    with pytest.raises(StreamError, match=rf"has {known.classes} classes, .* has 3 \(n00000000"):
        FOLDERS[name](str(tmp_path / "few"))


@pytest.mark.parametrize("name", ["imagenet_r", "imagenet_a"])
def test_one_folder_of_wnids_gets_a_written_split(name, tmp_path):
    top = write_tree(tmp_path / "imagenet", names(200), train=5, test=None)
    (top / "README.txt").write_text("about")
    with pytest.warns(UserWarning, match=r"has .*00 images, .* has 1,000: the seeded split"):
        benchmark = FOLDERS[name](str(tmp_path))
    assert benchmark.split.endswith("split-0.2-seed-0.json")
    assert lengths(benchmark.train_stream) == [80] * 10
    assert lengths(benchmark.test_stream) == [20] * 10
    assert (top / "split-0.2-seed-0.json").is_file()


def test_several_folders_that_fit_are_not_guessed_from(tmp_path):
    for name in ("imagenet-a", "imagenet-r"):
        write_tree(tmp_path / name, names(200), train=1)
    with pytest.raises(StreamError, match=r"2 folders that could be meant .imagenet-a, imagenet-r"):
        imagenet_r(str(tmp_path))
    assert len(imagenet_r(str(tmp_path / "imagenet-r")).train_stream) == 10


def test_a_published_training_side_is_never_split(tmp_path):
    write_tree(tmp_path / "train", names(200), train=2, test=None)
    with pytest.raises(StreamError, match="no test images, and a split of its own is published"):
        imagenet_r(str(tmp_path))
    assert not [*tmp_path.rglob("*.json")]


def test_nothing_is_written_into_a_folder_that_is_not_the_one(tmp_path):
    write_tree(tmp_path, names(3), train=3, test=None)
    (tmp_path / "empty").mkdir()
    for call in (imagenet_r, eurosat):
        with pytest.raises(StreamError, match="classes"):
            call(str(tmp_path))
    assert not [p for p in tmp_path.rglob("*") if "split" in p.name]


@pytest.mark.parametrize("name", ["cub200", "omnibenchmark", "vtab"])
def test_a_split_of_ours_never_takes_the_place_of_a_published_one(name, tmp_path):
    top = write_tree(tmp_path, names(PUBLISHED[name].classes), train=2, test=None)
    with pytest.raises(StreamError, match="no test images, and a split of its own is published"):
        FOLDERS[name](str(top))
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("place", ["eurosat/2750", "2750", "."])
@pytest.mark.filterwarnings("ignore:EuroSAT has 27,000")
def test_eurosats_folders(place, tmp_path):
    write_tree(tmp_path / place, names(10), train=5, test=None)
    benchmark = eurosat(str(tmp_path))
    assert lengths(benchmark.train_stream) == [8] * 5 and lengths(benchmark.test_stream) == [2] * 5


@pytest.fixture
def archive(tmp_path):
    """Three images a class, the last for testing; ids in an order of their own."""
    base = tmp_path / "CUB_200_2011"
    lines = {k: [] for k in ("classes", "images", "image_class_labels", "train_test_split")}
    for c in range(1, 201):
        label = f"{c:03}.Bird_{c}"
        lines["classes"].append(f"{c} {label}")
        for i in range(3):
            number = 3 * (200 - c) + i + 1
            write_image(base / "images" / label / f"{i}.jpg", seed=number)
            lines["images"].append(f"{number} {label}/{i}.jpg")
            lines["image_class_labels"].append(f"{number} {c}")
            lines["train_test_split"].append(f"{number} {int(i < 2)}")
    for name, own in lines.items():
        (base / f"{name}.txt").write_text("\n".join(own) + "\n")
    return tmp_path


def test_cubs_original_archive(archive):
    benchmark = cub200(str(archive), class_order_seed=None)
    assert lengths(benchmark.train_stream) == [20] * 20
    assert lengths(benchmark.test_stream) == [10] * 20 and benchmark.split == "official"
    assert benchmark.class_names[:2] == ["001.Bird_1", "002.Bird_2"]
    base = archive / "CUB_200_2011"
    write_tree(base, benchmark.class_names, train=4)
    assert lengths(cub200(str(archive)).train_stream) == [40] * 20, "made on purpose: goes first"
    shutil.rmtree(base / "test")
    (base / "images" / "002.Bird_2" / "1.jpg").rename(archive / "away.jpg")
    with pytest.raises(StreamError, match=r"002\.Bird_2/1\.jpg of images\.txt is missing"):
        cub200(str(archive))
    (archive / "away.jpg").rename(base / "images" / "002.Bird_2" / "1.jpg")
    (base / "train_test_split.txt").write_text("1 1\n")
    with pytest.raises(StreamError, match=r"has no class or no side"):
        cub200(str(archive))
    (base / "classes.txt").unlink()
    with pytest.raises(StreamError, match=r"classes\.txt can't be read"):
        cub200(str(archive))


@pytest.fixture
def cifar_root(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    base = tmp_path / "cifar-100-python"
    base.mkdir()
    for side, n in (("train", 3), ("test", 2)):
        fine = [c for c in range(100) for _ in range(n)]
        data = rng.integers(0, 255, (len(fine), 3072), np.uint8)
        (base / side).write_bytes(pickle.dumps({"data": data, "fine_labels": fine}))
    (base / "meta").write_bytes(pickle.dumps({"fine_label_names": names(100)}))
    # the sums of the real files are torchvision's to check
    monkeypatch.setattr(CIFAR100, "_check_integrity", lambda self: True)
    monkeypatch.setattr(cifar, "check_integrity", lambda *_: True)
    return tmp_path


def test_cifar100(cifar_root):
    benchmark = cifar100(str(cifar_root), download=False)
    assert lengths(benchmark.train_stream) == [15] * 20
    assert lengths(benchmark.test_stream) == [10] * 20
    order = np.random.RandomState(1993).permutation(100).tolist()
    assert benchmark.class_names == [names(100)[i] for i in order]


def test_cifar100_that_is_not_there(tmp_path):
    (tmp_path / "cifar100.zip").touch()
    with pytest.raises(StreamError, match=r"found cifar100\.zip; expected ROOT/cifar-100-python"):
        cifar100(str(tmp_path), download=False)
    with pytest.raises(StreamError, match="no such folder"):
        cifar100(str(tmp_path / "nowhere"), download=False)


@pytest.mark.filterwarnings("ignore:no QP solver")
def test_the_check_command(tmp_path, archive, capsys):
    data = write_tree(tmp_path / "vtab", names(50))
    assert main(["check", "vtab", str(data)]) == 1
    out = capsys.readouterr().out
    assert "5 tasks, 50 classes, 100 training and 50 test images" in out
    assert "NOT as published: 50 classes, 1,796 / 8,619" in out
    assert main(["check", "vtab", str(data), "increment=25"]) == 1
    assert "2 tasks" in capsys.readouterr().out
    assert main(["check", "folder", str(data), "classes_per_task=[20,30]"]) == 0
    assert "no counts are published" in capsys.readouterr().out
    for wrong, says in (
        (["check", "vtab"], "needs a folder"),
        (["check", "digits", str(data)], "takes no folder"),
        (["check", "vtab", str(data), "incremnt=3"], "no key 'incremnt'; it has increment"),
        (["check", "vtba", str(data)], "did you mean 'vtab'"),
        (["check", "vtab", str(tmp_path / "none")], "does not exist"),
    ):
        assert main(wrong) == 2
        assert says in capsys.readouterr().err


def test_the_check_command_knows_the_published_counts(tmp_path, monkeypatch, capsys):
    small = PUBLISHED["vtab"].__class__("VTAB", 4, 8, 4, 2, "ROOT", "somewhere")
    monkeypatch.setitem(PUBLISHED, "vtab", small)
    monkeypatch.setattr("tosca_avalanche.benchmarks.__main__.TOTALS", {"vtab": 12})
    data = write_tree(tmp_path / "right", names(4))
    assert main(["check", "vtab", str(data), "increment=2"]) == 0
    assert "as published" in capsys.readouterr().out
    data = write_tree(tmp_path / "other", names(4), train=1, test=2)
    assert main(["check", "vtab", str(data), "increment=2"]) == 0
    assert "all 12 images are there; the published split is 8 / 4" in capsys.readouterr().out
