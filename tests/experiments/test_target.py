"""Avalanche benchmarks by their Python path."""

import pytest
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.benchmarks.utils.transform_groups import TransformGroups
from torch.utils.data import TensorDataset

from experiments.config import compose, register_configs, to_settings
from experiments.identity import run_path
from experiments.run import execute
from experiments.target import target
from tosca_avalanche.errors import StreamError

register_configs()
HERE = "tests.experiments.test_target"


def images(n, seed):
    x = torch.rand(n * 4, 3, 64, 64, generator=torch.Generator().manual_seed(seed))
    y = torch.arange(n * 4) % 4
    data = TensorDataset(x + y[:, None, None, None], y)
    data.targets = y.tolist()
    return data


def shades(n_experiences=2, train_transform=None, eval_transform=None, seed=None):
    """A benchmark of Avalanche's classic family, with its own draws."""
    torch.manual_seed(5)
    assert train_transform is not None and eval_transform is not None
    groups = TransformGroups({"train": (None, None), "eval": (None, None)})
    sides = [as_classification_dataset(images(n, n), groups) for n in (3, 2)]
    return nc_benchmark(*sides, n_experiences, task_labels=True, seed=seed)


def no_benchmark():
    return 3


class Halves:
    """Two training experiences, one test experience, as CORe50 has."""

    def __init__(self):
        whole = shades(2, 1, 1)
        self.train_stream, self.test_stream = whole.train_stream, whole.test_stream[:1]


MADE = shades(2, 1, 1)


def test_a_run_on_a_benchmark_of_ones_own(tmp_path):
    state = torch.get_rng_state()
    overrides = [f"stream._target_={HERE}.shades", "+stream.args.n_experiences=4",
                 "method=simplecil", f"results_root={tmp_path}", "seed=3"]  # fmt: skip
    settings = to_settings(compose(overrides))
    assert run_path(settings) == tmp_path / "shades" / "simplecil" / "per-image" / "seed-3"
    folder = execute(settings)
    assert torch.equal(state, torch.get_rng_state())
    assert (folder / "metrics.csv").read_text().count("acc,") >= 10
    assert "shades" in (folder / "metrics.csv").read_text()


def test_an_object_will_do():
    assert target(_target_=f"{HERE}.MADE") is not None
    assert target(_target_=f"{HERE}.MADE").task_sizes == [2, 2]


def test_what_is_wrong_is_named():
    with pytest.raises(StreamError, match="has 2 training and 1 test experiences"):
        target(_target_=f"{HERE}.Halves")
    with pytest.raises(StreamError, match=r"avalanche\.nothing can't be found"):
        target(_target_="avalanche.nothing")
    with pytest.raises(StreamError, match="gives no benchmark with train and test streams"):
        target(_target_=f"{HERE}.no_benchmark")
    with pytest.raises(StreamError, match=r"args \{'n': 3\}.*unexpected keyword"):
        target(_target_=f"{HERE}.no_benchmark", args={"n": 3})
