"""Learning without a training loop: the recipe of one task, the classifier, its model folder."""

from tosca_avalanche.learner.classifier import ToscaClassifier
from tosca_avalanche.learner.explanation import Explanation, Prototype
from tosca_avalanche.learner.folder import editing, read_manifest, read_model, write_model
from tosca_avalanche.learner.labels import Labels
from tosca_avalanche.learner.recipe import Recipe

__all__ = [
    "Explanation",
    "Labels",
    "Prototype",
    "Recipe",
    "ToscaClassifier",
    "editing",
    "read_manifest",
    "read_model",
    "write_model",
]
