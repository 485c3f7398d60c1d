"""SimpleCIL and APER as plain torch nets: class means, compared by cosine."""

from __future__ import annotations

from torch import Tensor

from tosca_avalanche.backbones.frozen import FrozenBackbone
from tosca_avalanche.modules.first_task import FirstTaskNet
from tosca_avalanche.modules.incremental import IncrementalNet
from tosca_avalanche.modules.prototypes import Prototypes


class PrototypeNet(IncrementalNet):
    """Nearest class mean by cosine on frozen features (SimpleCIL, IJCV 2024). Nothing is trained.

    The prototype of a class is the mean raw feature of all its training images, so the
    final net does not depend on the class order or on the split into tasks. A class that
    comes again updates its mean.
    """

    gives_probabilities = False  # cosines or regression scores, at no scale of their own

    def build(self, dim: int) -> None:
        """Make the prototypes."""
        self.prototypes = Prototypes(dim)

    def grow(self, labels: list[int]) -> None:
        """Make room for classes that were not seen before."""
        self.prototypes.grow(len(set(labels) - set(self.classes)))

    def learn(self, z: Tensor, y: Tensor) -> None:
        """Add features [B, d] with labels [B] of known classes."""
        self.prototypes.update(z, self.positions(y))

    def classify(self, z: Tensor, task_ids: Tensor | None = None) -> Tensor:
        """Return outputs [B, width]: cos(z, prototype) for features z [B, d]."""
        return self.to_outputs(self.prototypes(z) if self.n_tasks else z)


class APERNet(FirstTaskNet, PrototypeNet):
    """Adapters learned on the first task, then class means of [frozen CLS, adapted CLS].

    One cosine over the raw concatenation (APER-Adapter, IJCV 2024).

    :param paired: False leaves the frozen CLS out (EASE with one task is this).
    """

    def __init__(
        self, backbone: FrozenBackbone, *, width: int = 64, paired: bool = True, seed: int = 0
    ) -> None:
        super().__init__(backbone, width=width, paired=paired, seed=seed)

    def build(self, dim: int) -> None:
        """Make the prototypes, of the width of the features."""
        super().build(self.feature_dim)
