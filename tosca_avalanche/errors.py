"""Errors of the package. Each message names the thing, the value and what to do."""

from __future__ import annotations

PIXELS = "look at that image's pixels"


class ToscaError(Exception):
    """Base of all errors raised on purpose by this package."""


class BackboneError(ToscaError, ValueError):
    """A backbone that can't be built: a bad name, missing or unfitting weights."""


class StreamError(ToscaError, ValueError):
    """A stream that can't be built: a missing folder, a class on one side only, a bad size."""


class InputError(ToscaError, ValueError):
    """Images, features or labels of a shape, range or kind that can't be meant."""


class ModelError(ToscaError, RuntimeError):
    """A model folder that can't be read or written: missing, altered, or too new."""


class TrainingError(ToscaError, RuntimeError):
    """Training that can't go on: a loss or a feature that is not finite."""


class FeatureError(TrainingError):
    """A feature that is not finite.

    :param fact: which one.
    :param advice: where to look.
    """

    def __init__(self, fact: str, advice: str = PIXELS) -> None:
        super().__init__(fact, advice)
        self.fact, self.advice = fact, advice

    def __str__(self) -> str:
        return f"{self.fact}; {self.advice}"


class StoreError(ToscaError, RuntimeError):
    """A feature store that can't be read or written."""


class RecordError(ToscaError, RuntimeError):
    """Results that can't be written, read or compared."""


class ExportError(ToscaError, ValueError):
    """A model that can't be exported, or whose exported file answers otherwise."""


class ImportedModelError(ToscaError, ValueError):
    """A foreign checkpoint that can't be read as a model of ours."""
