"""The written ONNX file against torch, run by onnxruntime."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.learner.pictures import pictures
from tosca_avalanche import ToscaClassifier
from tosca_avalanche import export as export_module
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import ExportError
from tosca_avalanche.export import export_onnx
from tosca_avalanche.modules import ToscaNet
from tosca_avalanche.modules.luca import FLOWS

onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")


def trained(backbone, tasks=((3, 0), (7, 1)), sharp=True, **settings):
    """A net whose modules differ clearly, so that every one of them answers for something."""
    net = ToscaNet(backbone, **settings)
    for labels in tasks:
        net.add_task(list(labels))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in net.bank.luca.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=generator))
        if sharp:
            net.head.sigma.fill_(8.0)
    net.bank.freeze()
    return net.eval()


def features(n, dim=32):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(2))


def run(path, x):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})


@pytest.mark.parametrize("flow", FLOWS)
def test_the_head_alone(backbone, tmp_path, flow):
    net, z = trained(backbone, flow=flow), features(200)
    found = export_onnx(net, tmp_path / "head.onnx", inputs="features")
    assert found.inputs == 20 and found.near_ties == 0 and found.largest_difference < 1e-4
    for n in (1, 5, 200):
        outputs, modules = run(tmp_path / "head.onnx", z[:n])
        np.testing.assert_allclose(
            outputs, net.classify(z[:n]).detach().numpy(), rtol=1e-5, atol=1e-4
        )
        assert modules.dtype == np.int64 and modules.tolist() == net.last_modules.tolist()
    assert outputs.shape == (200, 8) and set(modules.tolist()) == {0, 1}
    assert set(outputs.argmax(1).tolist()) <= {0, 1, 3, 7}


def test_images_through_a_transformer(tmp_path):
    """The embedded backbone, a class that comes again, the metadata, and nothing left changed."""
    net = trained(load_backbone("tiny_vit_64"), ((0, 1), (4, 2), (1,)), sharp=False)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    found = export_onnx(net, tmp_path / "a" / "net.onnx")
    assert found.path == tmp_path / "a" / "net.onnx" and found.largest_difference < 1e-3
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["net.onnx"]
    assert net.backbone.images_passed == 0 and not net.training
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    x = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(3))
    outputs, modules = run(tmp_path / "a" / "net.onnx", x)
    np.testing.assert_allclose(outputs, net(x).detach().numpy(), rtol=1e-4, atol=1e-4)
    assert modules.tolist() == net.last_modules.tolist()
    model = onnx.load(tmp_path / "a" / "net.onnx")
    about = {p.key: p.value for p in model.metadata_props}
    assert json.loads(about["backbone"])["fingerprint"] == net.backbone.fingerprint
    assert json.loads(about["task_classes"]) == [[0, 1], [2, 4], [1]]
    assert json.loads(about["transform"])["preset"] == "timm"


def test_ties_go_to_the_lowest_module_in_both(backbone, tmp_path):
    net = trained(backbone, ((0, 1), (2, 3), (4, 5)))
    net.bank.luca[1].load_state_dict(net.bank.luca[0].state_dict())
    net.bank.luca[2].load_state_dict(net.bank.luca[0].state_dict())
    z = features(50)
    export_onnx(net, tmp_path / "ties.onnx", inputs="features")
    _, modules = run(tmp_path / "ties.onnx", z)
    net.classify(z)
    assert modules.tolist() == net.last_modules.tolist() == [0] * 50


def test_a_net_in_training_is_exported_at_rest_and_goes_on_training(backbone, tmp_path):
    net = trained(backbone).train()
    net.add_task([9])
    found = export_onnx(net, tmp_path / "n.onnx", examples=torch.rand(4, 3, 4, 4))
    assert found.largest_difference < 1e-3 and net.training
    assert next(net.bank.current.parameters()).requires_grad


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (None, {"inputs": "pixels"}, "inputs='pixels'"),
        ("selection", {}, "selection='oracle' has no graph"),
        ("empty", {}, "no task"),
        (None, {}, "examples="),
        (None, {"examples": torch.rand(1, 3, 4, 4)}, "at least two"),
    ],
)
def test_what_is_refused(backbone, tmp_path, change, settings, message):
    net = ToscaNet(backbone) if change == "empty" else trained(backbone)
    if change == "selection":
        net.selection = "oracle"
    with pytest.raises(ExportError, match=message):
        export_onnx(net, tmp_path / "n.onnx", **settings)
    assert not list(tmp_path.iterdir())


def test_autocast_and_size_are_refused(tmp_path, monkeypatch, backbone):
    half = trained(load_backbone("tiny_vit_64", precision="bfloat16"))
    with pytest.raises(ExportError, match="bfloat16"):
        export_onnx(half, tmp_path / "n.onnx")
    monkeypatch.setattr(export_module, "MAX_BYTES", 1000)
    with pytest.raises(ExportError, match="2"):
        export_onnx(trained(backbone), tmp_path / "n.onnx", examples=torch.rand(2, 3, 4, 4))


class Doubles(nn.Module):
    """Gives other features under export than in a plain call."""

    embed_dim = 48

    def forward(self, x):
        z = x.flatten(1)
        return z.flip(1) if torch.compiler.is_exporting() else z


def test_a_file_that_answers_otherwise_is_not_written(tmp_path):
    net = trained(load_backbone(Doubles()))
    with pytest.raises(ExportError, match=r"chooses module|differ from torch's by up to \d"):
        export_onnx(net, tmp_path / "n.onnx", examples=torch.rand(8, 3, 4, 4))
    assert not list(tmp_path.iterdir())


def test_without_the_extra_the_package_to_install_is_named(backbone, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ExportError, match=r"'onnxscript': pip install 'tosca_avalanche\[onnx\]'"):
        export_onnx(trained(backbone), tmp_path / "n.onnx", inputs="features")


@pytest.mark.parametrize("tasks", [((3, 0), (7, 1)), ((3, 0), (7, 3))])
def test_the_routed_rule_in_one_graph(backbone, tmp_path, tasks):
    net = trained(backbone, tasks, selection="gaussian-ridge", projection=50)
    z = features(200) + torch.tensor([0, 3, 1, 7]).repeat(50).unsqueeze(1)
    for t, labels in enumerate(tasks):
        own = features(40) + torch.tensor(labels).repeat(20).unsqueeze(1)
        net.observe(own + t, torch.tensor(labels).repeat(20))
    found = export_onnx(net, tmp_path / "head.onnx", inputs="features")
    assert found.inputs == 20 and found.near_ties == 0 and found.largest_difference < 1e-3
    outputs, modules = run(tmp_path / "head.onnx", z)
    np.testing.assert_allclose(outputs, net.classify(z).detach().numpy(), rtol=1e-4, atol=1e-3)
    assert modules.tolist() == net.last_modules.tolist() and set(modules.tolist()) == {0, 1}


def test_a_classifier_is_exported_as_its_net(tmp_path):
    model = ToscaClassifier("tiny_vit_64", epochs=1, store=None)
    images, labels = pictures([0, 1], seed=0, size=64)
    found = model.fit(images, labels).export_onnx(tmp_path / "m.onnx")
    assert found.inputs == 20
    views = torch.stack([model.net.backbone.transforms.eval(Image.fromarray(i)) for i in images])
    outputs, _ = run(tmp_path / "m.onnx", views)
    assert outputs.argmax(1).tolist() == model.predict(images).tolist()
