"""How uncertain an answer is, from 0 to 1, and answers that say "unknown" above a threshold."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tosca_avalanche.modules.incremental import IncrementalNet
from tosca_avalanche.selection import entropy

UNKNOWN = -1
"""What :func:`answers` gives instead of a label; labels are 0 or more."""
_STEPS = 100
_LIMIT = 1e4


def normalised_entropy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return H(softmax(logits / temperature)) / log C over the last dimension, from 0 to 1.

    0 is certainty, 1 is all C classes alike, whatever C; a single class leaves no doubt: 0.

    >>> normalised_entropy(torch.zeros(3, 7))
    tensor([1., 1., 1.])

    :param logits: [..., C].
    :param temperature: above 1 makes answers less certain; see :func:`fit_temperature`.
    :raises ValueError: a temperature that is not positive.
    """
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature={temperature}: pass a positive number")
    n = logits.shape[-1]
    if n < 2:
        return logits.new_zeros(logits.shape[:-1])
    return (entropy(logits / temperature) / math.log(n)).clamp(0, 1)


def fit_temperature(logits: Tensor, positions: Tensor) -> float:
    """Return the temperature that makes held-out images' true classes the most likely.

    The minimiser of the mean of -log softmax(logits / temperature)[true class] (Guo et al.,
    ICML 2017, temperature scaling), between 1e-4 and 1e4. The loss is convex in 1 / temperature, so
    that bisection on its slope finds it exactly. It changes no answer, only how sure it is.

    Fit it on TRAINING images that the task's module was not trained on, never on test
    images: on the images trained on, a net is surer than it should be, and so is this.

    :param logits: [N, C] logits over the seen classes.
    :param positions: [N], the column of each image's true class.
    :raises ValueError: no images, or shapes and columns that don't fit.
    """
    if logits.dim() != 2 or not len(logits) or positions.shape != logits.shape[:1]:
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and positions {tuple(positions.shape)}: pass "
            f"[N, C] and [N] with at least one image"
        )
    if int(positions.min()) < 0 or int(positions.max()) >= logits.shape[1]:
        raise ValueError(f"positions must be columns 0 .. {logits.shape[1] - 1} of the logits")
    own = logits.detach().double()
    own = own - own.max(dim=1, keepdim=True).values
    true = own.gather(1, positions.to(own.device).unsqueeze(1)).squeeze(1)
    low, high = -math.log(_LIMIT), math.log(_LIMIT)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        p = torch.softmax(own * math.exp(middle), dim=1)
        slope = float(((p * own).sum(dim=1) - true).mean())
        low, high = (middle, high) if slope < 0 else (low, middle)
    return math.exp(-(low + high) / 2)


def seen_logits(net: IncrementalNet, outputs: Tensor) -> Tensor:
    """Return the columns [B, C] of the classes seen, in their order, from outputs [B, width]."""
    return outputs[:, net.classes]


def answers(
    net: IncrementalNet,
    outputs: Tensor,
    *,
    abstain: float | None = None,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return the label [B] of each image and how uncertain it is [B], from 0 to 1.

    The label is ``UNKNOWN`` (-1) where :func:`normalised_entropy` over the seen classes is
    above ``abstain``. An image's answer depends on that image alone.

    :param net: a net that has learned something, and whose outputs are logits
        (``net.gives_probabilities``): cosines or regression scores say nothing of certainty.
    :param outputs: [B, width], of ``net(images)`` or ``net.classify(features)``.
    :param abstain: a threshold from 0 to 1; None always answers.
    :raises ValueError: a threshold outside 0 .. 1, or a net that it can't be asked of.
    """
    if abstain is not None and not 0 <= abstain <= 1:
        raise ValueError(f"abstain={abstain}: pass a threshold from 0 (sure) to 1 (all alike)")
    if not net.classes:
        raise ValueError("this net has learned no class yet: there is nothing to answer")
    if abstain is not None and not net.gives_probabilities:
        raise ValueError(
            f"abstain={abstain}: the outputs of {type(net).__name__} are scores, not logits, and "
            f"say nothing of certainty"
        )
    labels = outputs.argmax(dim=1)
    uncertain = normalised_entropy(seen_logits(net, outputs), temperature)
    if abstain is not None:
        labels = torch.where(uncertain > abstain, UNKNOWN, labels)
    return labels, uncertain
