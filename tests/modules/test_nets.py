"""The nets: outputs, classes that come again, state, and TOSCA's inference written out."""

import math

import pytest
import torch
import torch.nn.functional as F

from tosca_avalanche.modules import PrototypeNet, ToscaNet
from tosca_avalanche.modules.incremental import pad_outputs


def grown(backbone, tasks, **settings):
    net = ToscaNet(backbone, scale_init=8.0, **settings)
    generator = torch.Generator().manual_seed(0)
    for labels in tasks:
        net.add_task(labels)
        net.finish_task(torch.randn(len(labels), 32, generator=generator))
    return net.eval()


def test_inference_is_the_papers_written_out(backbone):
    """Each module: softmax over all seen classes; the one of lowest entropy answers."""
    net = grown(backbone, [[0, 3], [1, 4], [2]])
    x = torch.randn(20, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    z = backbone(x)
    with torch.no_grad():
        out = net(x)
        chosen = set()
        for i in range(20):
            best = None
            for t, module in enumerate(net.bank.luca):
                v = module(z[i])
                logits = [8.0 * F.cosine_similarity(v, row, dim=0).item() for row in net.head.rows]
                total = sum(math.exp(q) for q in logits)
                p = [math.exp(q) / total for q in logits]
                entropy = -sum(q * math.log(q) for q in p)
                if best is None or entropy < best[0] - 1e-7:
                    best = (entropy, t, logits)
            chosen.add(best[1])
            assert net.last_modules[i] == best[1]
            for label, logit in zip([0, 3, 1, 4, 2], best[2], strict=True):
                assert out[i, label].item() == pytest.approx(logit, abs=1e-5)
    assert len(chosen) > 1, "the case must have images on both sides"


def test_one_task_equals_its_single_module(backbone):
    net = grown(backbone, [[0, 1]])
    x = torch.randn(5, 3, 4, 4)
    torch.testing.assert_close(net(x), net.head(net.bank.luca[0](backbone(x))))


def test_labels_never_seen_can_not_win_and_stay_finite(backbone):
    net = grown(backbone, [[5, 853]])
    out = net(torch.randn(6, 3, 4, 4))
    assert out.shape == (6, 854) and torch.isfinite(out).all()
    assert set(out.argmax(1).tolist()) <= {5, 853}
    assert out.softmax(1)[:, [5, 853]].sum(1).tolist() == pytest.approx([1.0] * 6)
    wide = pad_outputs(out, 900)
    assert torch.isfinite(F.cross_entropy(wide, torch.full((6,), 899)))


def test_a_class_that_comes_again_takes_its_larger_row(backbone):
    net = grown(backbone, [[0, 1], [1, 2]])
    z = backbone(torch.randn(7, 3, 4, 4))
    rows = net.head(net.bank(z))
    assert rows.shape == (2, 7, 4) and net.classes == [0, 1, 2]
    expected = torch.stack([rows[..., 0], rows[..., [1, 2]].amax(-1), rows[..., 3]], dim=-1)
    assert torch.equal(net.module_logits(z), expected)


def test_training_scope(backbone):
    x = torch.randn(4, 3, 4, 4)
    for scope, learned in (("seen", {0, 1, 2, 3}), ("task", {2, 3})):
        net = ToscaNet(backbone, ce_scope=scope)
        net.add_task([0, 1])
        net.add_task([2, 3])
        probability = net.train()(x).softmax(1)
        assert {c for c in range(4) if (probability[:, c] > 0).all()} == learned


def test_only_the_newest_module_rows_and_sigma_learn(backbone):
    net = grown(backbone, [[0, 1], [2, 3]])
    net.add_task([4])
    names = {n for n, p in net.named_parameters() if p.requires_grad}
    assert {n for n in names if n.startswith("head")} == {"head.new_rows", "head.sigma"}
    assert all(n.startswith(("head", "bank.luca.2")) for n in names)
    assert len(net.head.new_rows) == 1


def test_initial_values_do_not_depend_on_what_was_drawn_before(backbone):
    a, b = ToscaNet(backbone, seed=1), ToscaNet(backbone, seed=1)
    a.add_task([0])
    torch.randn(100)
    b.add_task([0])
    assert torch.equal(a.bank.current.W1, b.bank.current.W1)
    a.add_task([1])
    assert not torch.equal(a.bank.luca[0].W1, a.bank.luca[1].W1)


def test_oracle_needs_task_ids(backbone):
    net = grown(backbone, [[0], [1]], selection="oracle")
    x = torch.randn(3, 3, 4, 4)
    with pytest.raises(ValueError, match="task_ids"):
        net(x)
    net(x, torch.tensor([1, 0, 1]))
    assert net.last_modules.tolist() == [1, 0, 1]


@pytest.mark.parametrize("bad", [[], [0, 0]])
def test_bad_tasks_are_refused(bad, backbone):
    with pytest.raises(ValueError, match="distinct"):
        ToscaNet(backbone).add_task(bad)


@pytest.mark.parametrize("key", ["ce_scope", "selection", "head_init", "norm", "flow", "old_rows"])
def test_bad_settings_are_named(key, backbone):
    with pytest.raises(ValueError, match=f"{key}='x'"):
        ToscaNet(backbone, **{key: "x"})


def test_state_of_other_settings_is_refused(backbone):
    state = grown(backbone, [[0, 1]]).state()
    with pytest.raises(ValueError, match="settings differ"):
        ToscaNet(backbone, bottleneck=5).restore(*state)
    with pytest.raises(ValueError, match="new net"):
        grown(backbone, [[0]]).restore(*state)


def test_prototype_net_is_the_cosine_to_class_means(backbone):
    net = PrototypeNet(backbone)
    z = torch.randn(9, 32, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 0, 0, 2, 2, 0, 2, 2, 2])
    for part in (slice(0, 4), slice(4, 9)):
        labels = sorted(set(y[part].tolist()))
        net.add_task(labels)  # both classes come again in the second task
        net.learn(z[part], y[part])
    query = torch.randn(3, 32, generator=torch.Generator().manual_seed(1))
    for label in (0, 2):
        mean = z[y == label].mean(0)
        expected = F.cosine_similarity(query, mean[None])
        torch.testing.assert_close(net.classify(query)[:, label], expected)
    assert net.classes == [0, 2]


def test_a_scale_that_turned_negative_is_said(backbone):
    net = ToscaNet(backbone)
    net.add_task([0, 1])
    with torch.no_grad():
        net.head.sigma.fill_(-0.2)
    with pytest.warns(UserWarning, match="sigma is -0.2 after task 0"):
        net.finish_task(torch.ones(2, 32))
