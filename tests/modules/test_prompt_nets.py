"""L2P, DualPrompt and CODA-Prompt against loops written from the text."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.modules.test_prompting import images
from tests.strategies.methods import TinyViT
from tosca_avalanche.backbones import load_backbone
from tosca_avalanche.errors import BackboneError
from tosca_avalanche.modules import CODAPromptNet, DualPromptNet, L2PNet
from tosca_avalanche.modules.codaprompt_net import component_prompts, orthonormal_rows
from tosca_avalanche.modules.prompt_net import match
from tosca_avalanche.modules.prompting import prefixed, with_tokens

D = 32


def grown(cls, tasks=([0, 3], [1, 4], [2]), **settings):
    net = cls(load_backbone(TinyViT()), **settings)
    for labels in tasks:
        net.add_task(labels)
    return net


def cosine(a, b):
    return float(a @ b) / (float(a @ a) * float(b @ b)) ** 0.5


def ranked(query, keys, k):
    return sorted(range(len(keys)), key=lambda i: (-cosine(query, keys[i]), i))[:k]


def test_matching_written_out():
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(9, 6, generator=generator), torch.randn(7, 6, generator=generator)
    chosen, cosines = match(queries, keys, 3)
    assert chosen.tolist() == [ranked(q, keys, 3) for q in queries]
    for b in range(9):
        for k in range(7):
            assert cosines[b, k].item() == pytest.approx(cosine(queries[b], keys[k]), abs=1e-6)
    votes = [sum(k in ranked(q, keys, 3) for q in queries) for k in range(7)]
    elected = sorted(range(7), key=lambda k: (-votes[k], k))[:3]
    assert match(queries, keys, 3, batchwise=True)[0].tolist() == [elected] * 9


@torch.no_grad()
@pytest.mark.parametrize("layout", ["pilot", "google"])
def test_l2p_written_out(layout):
    """The nearest prompts as tokens, best first; the mean of their outputs; a linear head."""
    net = grown(L2PNet, pool=6, length=2, top_k=3, layout=layout).eval()
    x = images(8)
    out = net(x)
    vit, order = TinyViT().eval(), [0, 3, 1, 4, 2]
    used = set()
    for n in range(8):
        own = ranked(vit(x[n : n + 1])[0], net.keys, 3)
        used.add(tuple(own))
        assert net.last_prompts[n].tolist() == own
        tokens = torch.cat([net.prompts[i] for i in own])[None]
        feature = with_tokens(vit, x[n : n + 1], tokens, layout)[0].mean(dim=0)
        expected = net.head.weight @ feature + net.head.bias
        torch.testing.assert_close(out[n, order], expected, atol=1e-5, rtol=1e-4)
    assert len(used) > 1


def test_l2ps_pull_loss_and_where_gradients_go():
    net = grown(L2PNet, [[0], [1, 4, 2], [3, 5]], pool=6, length=2, top_k=2, pull=0.3)
    x = images(5)
    query = net.backbone(x)
    out = net(x)
    total = sum(cosine(q, net.keys[i]) for q in query for i in ranked(q, net.keys, 2))
    assert net.penalty().item() == pytest.approx(-0.3 * total / 5, rel=1e-5)
    F.cross_entropy(out, torch.tensor([3, 5, 3, 5, 5])).backward(retain_graph=True)
    assert net.keys.grad is None, "keys learn through the pull term alone"
    chosen = sorted({i for q in query for i in ranked(q, net.keys, 2)})
    moved = [i for i in range(6) if net.prompts.grad[i].any()]
    assert moved == chosen
    net.penalty().backward()
    assert [i for i in range(6) if net.keys.grad[i].any()] == chosen
    assert not net.head.weight.grad[:4].any() and net.head.weight.grad[4:].any()


def test_initial_values_of_l2p():
    net = L2PNet(load_backbone(TinyViT()), pool=200)
    for values in (net.prompts, net.keys):
        assert values.min() < -0.99 and values.max() > 0.99 and abs(values.mean()) < 0.02
    net = L2PNet(load_backbone(TinyViT()), pool=200, low=0.0, high=0.01)
    assert net.keys.min() >= 0 and 0.0099 < net.keys.max() <= 0.01


@torch.no_grad()
def dual_oracle(net, x, expert_of, g_blocks, e_blocks):
    vit, rows = TinyViT().eval(), []
    for n, e in enumerate(expert_of):
        own = {b: tuple(kv[None] for kv in net.general[i]) for i, b in enumerate(g_blocks)}
        own |= {b: tuple(kv[None] for kv in net.experts[e][i]) for i, b in enumerate(e_blocks)}
        with prefixed(vit, own):
            rows.append(net.head(vit(x[n : n + 1]))[0])
    return torch.stack(rows)


def test_dualprompt_written_out():
    net = grown(DualPromptNet, g_blocks=[0], e_blocks=[1], length=2)
    with torch.no_grad():
        for i, p in enumerate(net.experts):
            p.add_(i)  # copies of each other until they are trained
    x, order = images(12), [0, 3, 1, 4, 2]
    query = TinyViT().eval()(x)
    nearest = [ranked(q, [*net.keys], 1)[0] for q in query]
    assert len(set(nearest)) > 1
    torch.testing.assert_close(
        net.eval()(x)[:, order], dual_oracle(net, x, nearest, [0], [1]), atol=1e-5, rtol=1e-4
    )
    assert net.last_prompts[:, 0].tolist() == nearest
    trained = net.train()(x)
    own = dual_oracle(net, x, [2] * 12, [0], [1])
    torch.testing.assert_close(trained[:, 2], own[:, 4], atol=1e-5, rtol=1e-4)
    pull = sum(cosine(q, net.keys[2]) for q in query) / 12
    assert net.penalty().item() == pytest.approx(-0.1 * pull, rel=1e-4)


def test_dualprompts_experts():
    net = grown(DualPromptNet, [[0], [1]], g_blocks=[0], e_blocks=[1])
    assert torch.equal(net.experts[0], net.experts[1]), "a copy of the one before"
    assert not torch.equal(net.keys[0], net.keys[1]), "the key is not"
    (net(images(4)).sum() + net.penalty()).backward()
    assert net.experts[0].grad is None and net.keys[0].grad is None
    assert net.experts[1].grad.any() and net.keys[1].grad.any() and net.general.grad.any()
    assert not net.experts[0].requires_grad


def test_dualprompts_pool_grows_or_is_pilots():
    net = grown(DualPromptNet, [[i] for i in range(12)], g_blocks=[0], e_blocks=[1])
    assert net.pool_size == 12, "no silent stop at ten"
    fixed = grown(DualPromptNet, [[i] for i in range(4)], g_blocks=[0], e_blocks=[1], pool=3)
    assert fixed.pool_size == 3
    x = images(20)
    fixed(x)  # a task beyond the pool trains whatever prompt matches
    matched = [ranked(q, [*fixed.keys], 1)[0] for q in fixed.backbone(x)]
    assert fixed.last_prompts[:, 0].tolist() == matched and len(set(matched)) > 1
    assert all(p.requires_grad for p in fixed.experts)


def test_coda_prompts_written_out():
    generator = torch.Generator().manual_seed(0)
    q, P, K, A = (
        torch.randn(s, generator=generator) for s in ((4, 6), (2, 5, 8), (2, 5, 6), (2, 5, 6))
    )
    out = component_prompts(q, P, K, A)
    for block in range(2):
        for b in range(4):
            weights = [cosine(q[b] * A[block, k], K[block, k]) for k in range(5)]
            assert min(weights) < 0 < max(weights), "signed, no softmax"
            expected = sum(w * P[block, k] for k, w in enumerate(weights))
            torch.testing.assert_close(out[block, b], expected)


@torch.no_grad()
def test_coda_forward_written_out():
    """The first half of a prompt's rows are keys, the second values."""
    net = grown(CODAPromptNet, blocks=[0, 1], length=4, components=3).eval()
    x, vit = images(6), TinyViT().eval()
    out = net(x)[:, [0, 3, 1, 4, 2]]
    prompts = component_prompts(vit(x), net.rows("P"), net.rows("K"), net.rows("A"))
    assert prompts.shape == (2, 6, 4 * D)
    for n in range(6):
        own = {}
        for block in range(2):
            rows = prompts[block, n].reshape(4, D)
            own[block] = (rows[None, :2], rows[None, 2:])
        with prefixed(vit, own):
            expected = net.head(vit(x[n : n + 1]))[0]
        torch.testing.assert_close(out[n], expected, atol=1e-5, rtol=1e-4)


def test_coda_components_of_earlier_tasks_are_frozen_and_still_contribute():
    net = grown(CODAPromptNet, blocks=[0], length=2, components=3, mu=0.1)
    (net(images(4)).sum() + net.penalty()).backward()
    assert {n for n, p in net.named_parameters() if p.grad is not None} == {
        "new_P", "new_K", "new_A", "head.weight", "head.bias"
    }  # fmt: skip
    assert net.rows("K").shape == (1, 9, D) and net.old_K.shape == (1, 6, D)
    before = net(images(2))
    net.old_P.zero_()
    assert not torch.allclose(before, net(images(2)))


def test_gram_and_schmidt():
    draws = torch.Generator().manual_seed(0)
    first = orthonormal_rows(torch.zeros(0, 16), 4, draws)
    second = orthonormal_rows(first * 3.0, 5, draws)
    rows = torch.cat([first, second])
    torch.testing.assert_close(rows @ rows.T, torch.eye(9), atol=1e-5, rtol=0)
    full = orthonormal_rows(torch.eye(4), 2, draws)
    torch.testing.assert_close(full.norm(dim=1), torch.ones(2))


def test_coda_starts_orthonormal_across_tasks():
    net = grown(CODAPromptNet, blocks=[0, 1], length=2, components=3)
    for name in ("P", "K", "A"):
        for rows in net.rows(name).detach():
            torch.testing.assert_close(rows @ rows.T, torch.eye(9), atol=1e-4, rtol=0)


def test_orthogonality_penalty_written_out():
    net = grown(CODAPromptNet, [[0], [1]], blocks=[0, 1], length=2, components=2, mu=0.5)
    with torch.no_grad():
        for name in ("P", "K", "A"):
            getattr(net, f"new_{name}").mul_(1.5)
    total = 0.0
    for block in range(2):
        for name in ("P", "K", "A"):
            m = net.rows(name)[block].detach()
            total += sum(
                (float(m[i] @ m[j]) - (i == j)) ** 2 for i in range(4) for j in range(4)
            ) / 16  # fmt: skip
    assert net.penalty().item() == pytest.approx(0.5 * total, rel=1e-4)
    assert grown(CODAPromptNet, blocks=[0]).penalty().item() == 0


def test_bad_settings_are_named():
    backbone = load_backbone(TinyViT())
    for cls, settings, words in (
        (L2PNet, {"layout": "jax"}, "layout='jax'"),
        (L2PNet, {"pool": 3, "top_k": 4}, "top_k=4"),
        (DualPromptNet, {"g_blocks": [0], "e_blocks": [0, 1]}, "block 0 has general and expert"),
        (DualPromptNet, {"g_blocks": [0], "e_blocks": [1], "pool": "ten"}, "pool='ten'"),
        (CODAPromptNet, {"blocks": [0], "length": 3}, "length=3"),
    ):
        with pytest.raises(ValueError, match=words):
            cls(backbone, **settings)
    for cls in (DualPromptNet, CODAPromptNet):
        with pytest.raises(BackboneError, match="block 2"):
            cls(backbone)
    assert math.isclose(L2PNet(backbone).pull, 0.1)
