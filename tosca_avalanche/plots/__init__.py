"""Figures of class-incremental learning, each with its numbers in a CSV file beside it."""

from __future__ import annotations

from tosca_avalanche.plots.accuracy import plot_accuracy
from tosca_avalanche.plots.cost import plot_cost
from tosca_avalanche.plots.dots import plot_dots
from tosca_avalanche.plots.forgetting import plot_forgetting
from tosca_avalanche.plots.heatmap import plot_heatmap
from tosca_avalanche.plots.maps import plot_maps
from tosca_avalanche.plots.reliability import plot_reliability
from tosca_avalanche.plots.selection import plot_selection
from tosca_avalanche.plots.similarity import plot_similarity
from tosca_avalanche.plots.style import save, save_table

__all__ = [
    "plot_accuracy",
    "plot_cost",
    "plot_dots",
    "plot_forgetting",
    "plot_heatmap",
    "plot_maps",
    "plot_reliability",
    "plot_selection",
    "plot_similarity",
    "save",
    "save_table",
]
