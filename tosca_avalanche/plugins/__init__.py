"""Avalanche plugins: TOSCA's module per experience, the accuracy matrix, a progress bar."""

from tosca_avalanche.plugins.accuracy_matrix import AccuracyMatrixPlugin
from tosca_avalanche.plugins.luca import LuCAPlugin
from tosca_avalanche.plugins.progress import ProgressPlugin

__all__ = ["AccuracyMatrixPlugin", "LuCAPlugin", "ProgressPlugin"]
