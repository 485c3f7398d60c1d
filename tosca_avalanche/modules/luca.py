"""LuCA, the module that TOSCA trains for each task (Learn and Calibrate)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NORMS = ("post", "pre", "none")
FLOWS = ("adapter-calibrator", "adapter", "calibrator", "parallel", "calibrator-adapter")
INITS = ("xavier", "torch")


class LuCA(nn.Module):
    """A residual bottleneck adapter, then a sigmoid-gated calibrator, on [CLS] tokens.

    For z in R^d and bottleneck r, the default flow computes::

        a = W2 GELU(W1 z + b1) + b2        adapter
        h = LayerNorm(z + a)               residual, norm after the sum
        g = sigmoid(V2 ReLU(V1 h))         calibrator
        L(z) = h * g

    Source: TOSCA (TMLR 2026, arXiv 2502.14762), section on LuCA, and the authors' code.
    Text and code disagree on the norm; ``norm="post"`` follows the code.

    :param dim: d, the width of the token.
    :param bottleneck: r of both branches; default d // 16 (at least 1). The module then
        has 4dr + 3d + r parameters: 149,808 at d = 768.
    :param norm: "post" h = LN(z + a), "pre" h = z + LN(a), "none" h = z + a.
    :param flow: "adapter-calibrator" as above, C(A(z)); the ablations are
        "adapter" LN(a) without residual, "calibrator" z * g(z),
        "parallel" z * g(z) + LN(a) (the authors' "reverse/parallel"),
        "calibrator-adapter" the true reverse order A(C(z)).
    :param init: "xavier" (Xavier-uniform matrices, zero biases) or "torch" (the default
        of ``nn.Linear``, which the authors' FIRST module keeps).
    :param generator: source of the initial values; a fresh one with seed 0 by default.

    Shapes: input [..., d], output [..., d].

    >>> module = LuCA(768)
    >>> sum(p.numel() for p in module.parameters())
    149808
    >>> module(torch.zeros(2, 768)).shape
    torch.Size([2, 768])
    """

    def __init__(
        self,
        dim: int,
        bottleneck: int | None = None,
        norm: str = "post",
        flow: str = "adapter-calibrator",
        init: str = "xavier",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        for name, value, allowed in (
            ("norm", norm, NORMS),
            ("flow", flow, FLOWS),
            ("init", init, INITS),
        ):
            if value not in allowed:
                raise ValueError(f"LuCA: {name}={value!r} is unknown; choose one of {allowed}")
        r = max(1, dim // 16) if bottleneck is None else bottleneck
        if dim < 1 or r < 1:
            raise ValueError(f"LuCA: dim and bottleneck must be positive, got {dim} and {r}")
        self.dim, self.bottleneck, self.norm, self.flow = dim, r, norm, flow
        if flow != "calibrator":
            self.W1, self.b1 = _empty(r, dim), _empty(r)
            self.W2, self.b2 = _empty(dim, r), _empty(dim)
            if norm != "none":
                self.ln = nn.LayerNorm(dim, eps=1e-5)
        if flow != "adapter":
            self.V1, self.V2 = _empty(r, dim), _empty(dim, r)
        self.initialise(init, generator)

    def mlp(self, z: Tensor) -> Tensor:
        """Return a = W2 GELU(W1 z + b1) + b2."""
        return linear(F.gelu(linear(z, self.W1, self.b1)), self.W2, self.b2)

    def normed(self, x: Tensor) -> Tensor:
        """Return LN(x), or x where the module has no norm."""
        if self.norm == "none":
            return x
        centred = F.layer_norm(x, (self.dim,), eps=self.ln.eps)
        return centred * per_module(self.ln.weight) + per_module(self.ln.bias)

    def adapter(self, z: Tensor) -> Tensor:
        """Return h, the adapter with its residual and norm."""
        a = self.mlp(z)
        return z + self.normed(a) if self.norm == "pre" else self.normed(z + a)

    def calibrator(self, h: Tensor) -> Tensor:
        """Return h * sigmoid(V2 ReLU(V1 h))."""
        return h * torch.sigmoid(linear(F.relu(linear(h, self.V1)), self.V2))

    def forward(self, z: Tensor) -> Tensor:
        """Return L(z); z and result are [..., d]."""
        if self.flow == "adapter-calibrator":
            return self.calibrator(self.adapter(z))
        if self.flow == "adapter":
            return self.normed(self.mlp(z))
        if self.flow == "calibrator":
            return self.calibrator(z)
        if self.flow == "parallel":
            return self.calibrator(z) + self.normed(self.mlp(z))
        return self.adapter(self.calibrator(z))

    @torch.no_grad()
    def initialise(self, init: str, generator: torch.Generator | None = None) -> None:
        """Draw the matrices from ``generator`` and set LayerNorm to 1 and 0."""
        generator = generator or torch.Generator().manual_seed(0)
        for name, p in self.named_parameters(recurse=False):
            if init == "torch":
                fan_in = self.bottleneck if name in ("W2", "b2", "V2") else self.dim
                p.uniform_(-1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in), generator=generator)
            elif p.dim() == 2:
                nn.init.xavier_uniform_(p, generator=generator)
            else:
                p.zero_()

    def l1_norm(self) -> Tensor:
        """Return sum |theta| over every parameter, biases and LayerNorm included."""
        return torch.stack([p.abs().sum() for p in self.parameters()]).sum()

    @torch.no_grad()
    def soft_threshold(self, amount: float) -> None:
        """Move every parameter towards 0 by ``amount``, stopping at exact 0 (proximal l1 step)."""
        for p in self.parameters():
            p.copy_(p.sign() * (p.abs() - amount).clamp_min(0))

    def extra_repr(self) -> str:
        """Return the settings for printing."""
        return f"{self.dim}, bottleneck={self.bottleneck}, norm={self.norm}, flow={self.flow}"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return W x + b; with weights stacked over modules [T, out, in], for every module at once.

    :param x: [..., in]; with stacked weights [B, in], the same for all, or [T, B, in].
    """
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    if x.dim() == 2:  # one product for all modules: [B, in] x [in, T * out]
        out = F.linear(x, weight.flatten(0, 1)).unflatten(1, weight.shape[:2]).transpose(0, 1)
    else:
        out = torch.bmm(x, weight.transpose(1, 2))
    return out if bias is None else out + per_module(bias)


def per_module(vector: Tensor) -> Tensor:
    """Line up a vector [d], or one vector a module [T, d], with tokens [..., B, d]."""
    return vector if vector.dim() == 1 else vector.unsqueeze(1)


def _empty(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape))
