"""A head trained on Gaussian samples of classes whose images are gone (MOS, SLCA)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR

from tosca_avalanche.errors import TrainingError
from tosca_avalanche.modules.linear_head import LinearHead

RIDGE = 1e-4


def gaussian_of(z: Tensor, covariance: str = "full") -> tuple[Tensor, Tensor]:
    """Return mean [d] and covariance [d, d] (or its diagonal [d]) of features [N, d].

    Unbiased, plus 1e-4 on the diagonal; a single image has no spread and gets that alone.
    """
    mean = z.mean(dim=0)
    centred = z - mean
    n = max(1, len(z) - 1)
    if covariance == "diagonal":
        return mean, (centred**2).sum(dim=0) / n + RIDGE
    eye = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    return mean, centred.T @ centred / n + RIDGE * eye


def roots_of(covariances: Tensor) -> Tensor:
    """Return the Cholesky roots [R, d, d] in double precision.

    A covariance of few images is singular but for its ridge, and single precision may have
    lost that: then the ridge is raised tenfold until there is a root.
    """
    covariances, ridge = covariances.double(), RIDGE
    eye = torch.eye(covariances.shape[-1], dtype=torch.float64, device=covariances.device)
    roots, failed = torch.linalg.cholesky_ex(covariances)
    while failed.any() and ridge < 1e6:
        covariances = covariances + (failed > 0).double()[:, None, None] * ridge * eye
        roots, failed = torch.linalg.cholesky_ex(covariances)
        ridge *= 10
    if failed.any():
        raise TrainingError(f"the covariance of row {int(failed.nonzero()[0])} is not finite")
    return roots


def align_head(
    head: LinearHead,
    means: Tensor,
    covariances: Tensor,
    *,
    targets: Tensor,
    merge_rows: Callable[[Tensor], Tensor],
    epochs: int,
    samples: int,
    lr: float,
    draws: torch.Generator,
) -> None:
    """Train the head on samples of N(mean, covariance) of every row, cross-entropy over classes.

    Each epoch draws ``samples`` features per row, shuffles all, and takes steps of
    ``samples``: SGD, momentum 0.9, cosine to 0. Nothing but the head moves. Source: MOS,
    classifier alignment.

    :param targets: position of each row's class among the classes [R].
    :param merge_rows: logits per row to logits per class.
    :param draws: a CPU generator.
    """
    full = covariances.dim() == 3
    roots = roots_of(covariances).float() if full else covariances.sqrt()
    optimizer = SGD(head.parameters(), lr, momentum=0.9)
    schedule = CosineAnnealingLR(optimizer, T_max=epochs)
    rows, dim = means.shape
    labels = targets.repeat_interleave(samples)
    for epoch in range(epochs):
        noise = torch.randn(rows, samples, dim, generator=draws).to(means)
        spread = noise @ roots.mT if full else noise * roots.unsqueeze(1)
        z = (means.unsqueeze(1) + spread).flatten(0, 1)
        order = torch.randperm(len(z), generator=draws).to(z.device)
        with torch.enable_grad():
            for part in order.split(samples):
                optimizer.zero_grad()
                loss = F.cross_entropy(merge_rows(head(z[part])), labels[part])
                if not torch.isfinite(loss):
                    raise TrainingError(
                        f"the loss became {loss.item()} in epoch {epoch} of the head's alignment: "
                        f"lower its learning rate ({lr})"
                    )
                loss.backward()
                optimizer.step()
        schedule.step()
