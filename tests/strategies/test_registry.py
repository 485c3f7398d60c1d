"""Strategies by name."""

import pytest

from tosca_avalanche.strategies import SimpleCILStrategy, find_strategy, register


def test_names():
    assert find_strategy("simplecil") is SimpleCILStrategy
    with pytest.raises(ValueError, match="did you mean 'simplecil'"):
        find_strategy("simplecli")
    with pytest.raises(ValueError, match="is taken by SimpleCILStrategy"):
        register("simplecil")(int)
