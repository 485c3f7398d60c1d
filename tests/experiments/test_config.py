"""Configuration: groups from signatures, and refusals that name the nearest key."""

import dataclasses
import tarfile

import pytest
from omegaconf import MISSING

from experiments import ablate
from experiments.config import compose, method_schema, register_configs, to_settings
from experiments.identity import identity, protocol_of, run_path
from tosca_avalanche.strategies import strategy_names

register_configs()


def settings(*overrides):
    return to_settings(compose(list(overrides)))


def test_defaults_are_the_strategys():
    method = settings()["method"]
    assert method["l1"] == 5e-4 and method["selection"] == "entropy"
    assert method["train_epochs"] == 20 and method["train_views"] == 0
    assert settings("method=simplecil")["method"]["train_mb_size"] == 64
    aper = settings("method=aper")["method"]
    assert aper["lr"] == 0.01 and aper["first_epochs"] == 20 and aper["train_mb_size"] == 48
    assert settings("stream=digits", "stream.classes_per_task=[5,5]")["stream"] == {
        "name": "digits",
        "label": None,
        "classes_per_task": [5, 5],
    }


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("method=tosco", "did you mean 'tosca'"),
        ("stream=digit", "did you mean 'digits'"),
        ("method.epohs=3", "did you mean 'method.train_epochs'"),
        ("sed=3", "did you mean 'seed'"),
        ("+method.new=3", "unknown key 'method.new'"),
        ("method.lr=abc", "method.lr"),
        ("seed=1.5", "seed"),
        ("stream=folder", "stream.root has no default"),
    ],
)
def test_what_is_refused(override, says):
    with pytest.raises(ValueError, match=says):
        settings(override)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["eval_order=shuffled"], "tosca answers each image.*pass method.selection=entropy-batch"),
        (["eval_order=shuffled", "method=l2p"], "pass method.batchwise=true"),
        (["eval_order=shuffled", "method=simplecil"], "by itself here; leave it out$"),
        (["eval_order=shuffled", "method.selection=oracle"], "leave it out, or pass method.sel"),
        (["eval_order=random", "method.selection=entropy-batch"], "choose one of .*'shuffled'"),
        (["method.projection=500"], "projection=500 has no effect with method.selection=entropy;"),
        (["method=tosca_routed", "method.selection=oracle", "method.ridge_weight=2"],
         "ridge_weight=2.0 has no effect.*pass method.selection=gaussian-ridge"),
    ],
)  # fmt: skip
def test_keys_without_effect_are_refused(words, says):
    with pytest.raises(ValueError, match=says):
        settings(*words)


@pytest.mark.parametrize(
    "words",
    [
        ["eval_order=class-sorted", "method.projection=2000"],  # the defaults say nothing
        ["eval_order=shuffled", "method=l2p", "method.batchwise=true"],
        ["method=tosca_routed", "method.projection=500", "method.ridge_weight=2"],
        ["method.selection=gaussian-ridge", "method.projection=0"],
        ["method=ranpac", "method.projection=500"],
        ["method=joint"],
    ],
)
def test_keys_with_an_effect_are_taken(words):
    assert settings(*words)


def test_the_ablation_of_protocols_can_still_be_planned():
    orders = [(run["eval_order"], protocol_of(run)) for _, run in ablate.plan("protocols", [])]
    assert len(orders) == 7 and orders.count(("class-sorted", "per-image")) == 2
    assert [o for o, p in orders if p.endswith("shuffled")] == ["shuffled"] * 2


def test_protocols_and_paths():
    assert protocol_of(settings("method=simplecil")) == "per-image"
    assert protocol_of(settings("method.selection=oracle")) == "oracle-task"
    batch = settings("method.selection=entropy-batch", "results_root=r")
    assert str(run_path(batch)) == "r/digits/tosca/batch48-sorted/seed-1993"
    shuffled = settings("method.selection=entropy-batch", "eval_order=shuffled", "seed=3")
    assert str(run_path(shuffled)) == "results/digits/tosca/batch48-shuffled/seed-3"
    own_order = settings("seed=3", "class_order_seed=4", "method.label=mine")
    assert str(run_path(own_order)) == "results/digits/mine/per-image/seed-3-order-4"
    folder = settings("stream=folder", "stream.root=/x/cifar100.tar")
    assert run_path(folder).parts[1] == "cifar100"


def test_where_results_go_is_no_part_of_a_runs_identity():
    a, b = settings("results_root=a", "overwrite=true"), settings("results_root=b")
    assert identity(a) == identity(b)


def test_where_the_data_lie_is_none_either_but_what_they_are(tmp_path):
    for place in ("here", "there/deep"):
        (tmp_path / place / "train/a").mkdir(parents=True)
        (tmp_path / place / "train/a/1.png").write_bytes(b"12345")
    here, there = (tmp_path / place for place in ("here", "there/deep"))

    def of(root):
        return identity(settings("stream=folder", f"stream.root={root}", "stream.label=x"))

    first = of(here)
    assert of(there) == first and first["stream"]["data"].startswith("1 files, ")
    (here / "split-0.2-seed-0.json").touch()
    (here / ".hidden").touch()
    assert of(here) == first
    (here / "train/a/1.png").write_bytes(b"1234")
    assert of(here) != first
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.add(there, "deep")
    assert of(tmp_path / "x.tar")["stream"]["data"].startswith("1 files, ")
    assert of(tmp_path / "nothing")["stream"]["data"] is None
    named = identity(settings("stream=cub200", "stream.root=/anywhere"))
    assert "root" not in named["stream"] and "data" not in named["stream"]


@pytest.mark.parametrize("name", strategy_names())
def test_every_method_runs_by_its_name_alone(name):
    fields = dataclasses.fields(method_schema(name))
    assert not [f.name for f in fields if f.default is MISSING]
    assert not {"common", "others", "kwargs"} & {f.name for f in fields}
