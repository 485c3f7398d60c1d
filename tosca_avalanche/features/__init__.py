"""Features of frozen backbones: identity of images, views, extraction, and the store."""

from tosca_avalanche.features.extract import feature_batches, stored_features
from tosca_avalanche.features.identity import image_key, salted, transform_key
from tosca_avalanche.features.store import FeatureSpace, FeatureStore
from tosca_avalanche.features.views import SeededViews

__all__ = [
    "FeatureSpace",
    "FeatureStore",
    "SeededViews",
    "feature_batches",
    "image_key",
    "salted",
    "stored_features",
    "transform_key",
]
