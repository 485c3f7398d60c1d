"""LuCA against its formula written out number by number."""

import math

import pytest
import torch

from tosca_avalanche.modules import LuCA
from tosca_avalanche.modules.luca import FLOWS, NORMS


def literal(module: LuCA, z: list[float]) -> list[float]:
    """The equations of LuCA for one token, with Python floats and loops."""
    p = {k: v.tolist() for k, v in module.named_parameters()}
    d = len(z)

    def times(matrix, vector, bias=None):
        out = [sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix]
        return out if bias is None else [o + b for o, b in zip(out, bias, strict=True)]

    def norm(x):
        if module.norm == "none":
            return x
        mean = sum(x) / d
        variance = sum((v - mean) ** 2 for v in x) / d
        return [
            (v - mean) / math.sqrt(variance + 1e-5) * w + b
            for v, w, b in zip(x, p["ln.weight"], p["ln.bias"], strict=True)
        ]

    def mlp(x):
        hidden = times(p["W1"], x, p["b1"])
        gelu = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in hidden]
        return times(p["W2"], gelu, p["b2"])

    def plus(x, y):
        return [a + b for a, b in zip(x, y, strict=True)]

    def adapter(x):
        return plus(x, norm(mlp(x))) if module.norm == "pre" else norm(plus(x, mlp(x)))

    def calibrator(h):
        hidden = [max(0.0, v) for v in times(p["V1"], h)]
        gate = [1 / (1 + math.exp(-v)) for v in times(p["V2"], hidden)]
        return [a * g for a, g in zip(h, gate, strict=True)]

    return {
        "adapter-calibrator": lambda: calibrator(adapter(z)),
        "adapter": lambda: norm(mlp(z)),
        "calibrator": lambda: calibrator(z),
        "parallel": lambda: plus(calibrator(z), norm(mlp(z))),
        "calibrator-adapter": lambda: adapter(calibrator(z)),
    }[module.flow]()


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("norm", NORMS)
def test_every_flow_and_norm_is_its_formula(flow, norm):
    generator = torch.Generator().manual_seed(4)
    module = LuCA(6, 3, norm, flow).double()
    with torch.no_grad():  # biases and LayerNorm away from 0 and 1, or the test would not see them
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    z = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    expected = torch.tensor([literal(module, row.tolist()) for row in z], dtype=torch.float64)
    torch.testing.assert_close(module(z), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("dim", "bottleneck", "norm", "count"),
    [
        (768, None, "post", 149_808),  # 74,544 adapter + 73,728 calibrator + 1,536 LayerNorm
        (768, None, "none", 149_808 - 1_536),
        (192, None, "post", 4 * 192 * 12 + 3 * 192 + 12),
        (10, 4, "pre", 4 * 10 * 4 + 3 * 10 + 4),
    ],
)
def test_parameter_counts(dim, bottleneck, norm, count):
    assert sum(p.numel() for p in LuCA(dim, bottleneck, norm).parameters()) == count


def test_ablations_hold_only_their_own_parameters():
    assert {n for n, _ in LuCA(32, flow="calibrator").named_parameters()} == {"V1", "V2"}
    assert "V1" not in dict(LuCA(32, flow="adapter").named_parameters())


def test_xavier_and_torch_initialisation():
    d, r = 64, 16
    xavier = LuCA(d, r)
    bound = math.sqrt(6 / (d + r))
    for name, p in xavier.named_parameters():
        if p.dim() == 2:
            assert 0.9 * bound < p.abs().max() <= bound, name
    assert not xavier.b1.any() and not xavier.b2.any()
    plain = LuCA(d, r, init="torch")
    assert 0.9 / math.sqrt(d) < plain.W1.abs().max() <= 1 / math.sqrt(d)
    assert 0.9 / math.sqrt(r) < plain.V2.abs().max() <= 1 / math.sqrt(r)
    assert plain.b1.any() and plain.b2.abs().max() <= 1 / math.sqrt(r)
    for module in (xavier, plain):
        assert torch.equal(module.ln.weight, torch.ones(d)) and not module.ln.bias.any()


def test_initial_values_come_from_the_given_generator_alone():
    torch.manual_seed(1)
    a = LuCA(16, generator=torch.Generator().manual_seed(7))
    state = torch.get_rng_state()
    b = LuCA(16, generator=torch.Generator().manual_seed(7))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def test_l1_norm_sums_every_parameter():
    module = LuCA(8)
    expected = sum(abs(v) for p in module.parameters() for v in p.flatten().tolist())
    assert module.l1_norm().item() == pytest.approx(expected, rel=1e-6)


def test_soft_threshold_gives_exact_zeros():
    module = LuCA(2, 1)
    with torch.no_grad():
        module.W1.copy_(torch.tensor([[0.3, -0.05]]))
    module.soft_threshold(0.1)
    torch.testing.assert_close(module.W1.detach(), torch.tensor([[0.2, 0.0]]))
    assert module.W1[0, 1] == 0


@pytest.mark.parametrize("bad", [{"norm": "x"}, {"flow": "x"}, {"init": "x"}, {"bottleneck": 0}])
def test_bad_settings_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        LuCA(8, **bad)
