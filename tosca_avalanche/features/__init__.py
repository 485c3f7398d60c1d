"""Features of frozen backbones: identity of images, views, extraction, and the store."""

from tosca_avalanche.features.extract import eval_space, feature_batches, stored_features
from tosca_avalanche.features.identity import image_key, source_key, transform_key
from tosca_avalanche.features.loaders import EpochOrder, FeatureData, FeatureLoader
from tosca_avalanche.features.store import FeatureSpace, FeatureStore
from tosca_avalanche.features.views import SeededViews

__all__ = [
    "EpochOrder",
    "FeatureData",
    "FeatureLoader",
    "FeatureSpace",
    "FeatureStore",
    "SeededViews",
    "eval_space",
    "feature_batches",
    "image_key",
    "source_key",
    "stored_features",
    "transform_key",
]
