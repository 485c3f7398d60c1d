"""Features of frozen backbones: views of images and their extraction."""

from tosca_avalanche.features.extract import feature_batches
from tosca_avalanche.features.views import SeededViews

__all__ = ["SeededViews", "feature_batches"]
