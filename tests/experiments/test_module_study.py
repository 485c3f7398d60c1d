"""Similarity of modules and maps of their outputs, against literal versions."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from experiments import ablate, module_study
from experiments.config import register_configs
from tosca_avalanche.modules import LuCA, ModuleBank

register_configs()
FAST = ("stream.classes_per_task=5", "backbone.weights=random", "method.train_epochs=1",
        "seeds=[1]")  # fmt: skip


def bank_of(*seeds):
    bank = ModuleBank()
    for seed in seeds:
        bank.add(LuCA(4, 2, generator=torch.Generator().manual_seed(seed)))
    bank.freeze()
    return bank


def cosine(a, b):
    over = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / over


def test_cosines_by_hand():
    found = module_study.cosines(torch.tensor([[3.0, 4.0], [4.0, 3.0], [-6.0, -8.0], [0.0, 0.0]]))
    expected = [[1, 0.96, -1, 0], [0.96, 1, -0.96, 0], [-1, -0.96, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert module_study.off_diagonal(np.array([[1, 0.5], [0.25, 1]])) == 0.375


def test_parameters_of_hand_made_modules():
    bank = bank_of(1, 2)
    with torch.no_grad():
        for sign, module in zip((1, -1), bank.luca, strict=True):
            for name, p in module.named_parameters():
                p.fill_(sign if p.dim() == 2 else float(name == "ln.weight"))
    matrices = module_study.parameters(bank, matrices=True)
    assert matrices.shape == (2, 4 * 4 * 2)
    assert module_study.cosines(matrices)[0, 1] == pytest.approx(-1)
    whole = module_study.parameters(bank)
    assert whole.shape == (2, 4 * 4 * 2 + 3 * 4 + 2)
    # 32 numbers of opposite sign, 4 equal ones of LayerNorm
    assert module_study.cosines(whole)[0, 1] == pytest.approx((4 - 32) / 36)


def test_outputs_against_a_literal_loop():
    bank, z = bank_of(1, 2, 3), torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    found = module_study.output_cosines(bank, z)
    outputs = [module(z).tolist() for module in bank.luca]
    for i in range(3):
        for j in range(3):
            pairs = zip(outputs[i], outputs[j], strict=True)
            expected = sum(cosine(a, b) for a, b in pairs) / 300
            assert found[i, j] == pytest.approx(expected, abs=1e-5)


def test_nearest_and_silhouette_by_hand():
    x, y = np.array([[0.0], [1.0], [3.0], [10.0], [11.5]]), np.array([0, 0, 1, 1, 1])
    # nearest: 1, 0, 1 (wrong), 11.5, 10
    found = module_study.separation(x, y)
    assert found["nearest"] == 4 / 5
    own = [(1, (3 + 10 + 11.5) / 3), (1, (2 + 9 + 10.5) / 3), ((7 + 8.5) / 2, 2.5),
           ((7 + 1.5) / 2, 9.5), ((8.5 + 1.5) / 2, 11)]  # fmt: skip
    by_hand = [(b - a) / max(a, b) for a, b in own]
    assert found["silhouette"] == pytest.approx(np.mean(by_hand))
    # 3 among (3, 10, 11.5) of its group is right
    assert module_study.nearest_is_right(x, y, np.array([0, 0, 1, 1, 1])) == 1
    assert module_study.nearest_is_right(x, y, np.array([0, 1, 1, 2, 3])) == 0
    assert module_study.nearest_is_right(x, y, np.arange(5)) is None
    assert module_study.separation(x, np.zeros(5))["silhouette"] is None
    assert module_study.separation(x, np.arange(5))["silhouette"] is None


def test_each_image_goes_through_the_module_of_its_own_task(backbone):
    net = module_study.ToscaNet(backbone)
    for labels in ([0], [1]):
        net.add_task(labels)
    z, tasks = torch.randn(3, 32), torch.tensor([1, 0, 1])
    found = module_study.views(net, z, tasks)
    for i, t in enumerate(tasks.tolist()):
        module = net.bank.luca[t]
        expected = {
            "raw features": z[i],
            "adapter alone": module.adapter(z[i]),
            "LuCA": module(z[i]),
        }
        for name, one in expected.items():
            np.testing.assert_allclose(found[name][i], one.detach().numpy(), rtol=1e-5, atol=1e-6)
    fresh = module_study.untrained(net)
    for a, b in zip(fresh.bank.parameters(), net.bank.parameters(), strict=True):
        assert torch.equal(a, b) and a is not b


def test_similarity_of_trained_and_untrained_modules(tmp_path):
    out = ablate.ablate("similarity", [*FAST, f"results_root={tmp_path}"])
    table = pd.read_csv(out / "table.csv").set_index(["setting", "metric"])["mean"]
    drawn = pd.read_csv(out / "similarity.csv")
    others = drawn[drawn["module"] != drawn["other"]]
    means = others.groupby(["column", "row"])["cosine"].mean()
    assert len(table) == len(means) == 9
    for key, value in table.items():
        assert value == pytest.approx(means[key]), key
    control = table[module_study.UNTRAINED]
    # independent draws, 9216 numbers; LayerNorm at 1 is what the whole vectors share
    assert abs(control["matrices"]) < 0.05 < control["parameters"]
    assert table["lambda = 0", "parameters"] != table["lambda = 5e-4 (default)", "parameters"]
    assert np.allclose(drawn[drawn["module"] == drawn["other"]]["cosine"], 1)
    assert [p.name for p in tmp_path.iterdir()] == ["similarity"]  # no run is kept
    with pytest.raises(ValueError, match=r"digits has 1 task\(s\), 2 are needed"):
        ablate.ablate(
            "similarity", [*FAST, "stream.classes_per_task=10", f"results_root={tmp_path}"]
        )


def test_tsne_of_real_images(tmp_path, monkeypatch):
    monkeypatch.setattr(module_study, "TSNE_IMAGES", 60)
    arguments = [*FAST, f"results_root={tmp_path}"]
    with pytest.raises(ValueError, match=r"method\.flow=parallel"):
        ablate.ablate("tsne", [*arguments, "method.flow=parallel"])
    out = ablate.ablate("tsne", arguments)
    table = pd.read_csv(out / "table.csv").set_index(["setting", "metric"])
    points = pd.read_csv(out / "tsne.csv")
    assert len(points) == 3 * 60 and set(points["group_is"]) == {"class"}
    for panel, own in points.groupby("panel"):
        xy, names = own[["x", "y"]].to_numpy(), own["class"].to_numpy()
        right = 0
        for i in range(60):
            distances = ((xy - xy[i]) ** 2).sum(axis=1)
            distances[i] = np.inf
            right += names[distances.argmin()] == names[i]
        setting = panel.splitlines()[0]
        assert table.loc[(setting, "map_nearest"), "mean"] == pytest.approx(right / 60)
        nearest, own = (table.loc[(setting, m), "mean"] for m in ("nearest", "own_nearest"))
        assert panel.endswith(f"1-NN {100 * nearest:.1f} %, within the task {100 * own:.1f} %")
    protocols = table["protocol"].groupby("setting").first().to_dict()
    assert protocols == {"raw features": "per-image", "adapter alone": "oracle-task",
                         "LuCA": "oracle-task"}  # fmt: skip
    before = (out / "tsne.csv").read_bytes()
    ablate.ablate("tsne", arguments)
    assert (out / "tsne.csv").read_bytes() == before
