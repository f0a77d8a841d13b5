"""Gives tests a float64 JAX and quick compilation."""

from pathlib import Path

import jax
import pytest


@pytest.fixture
def x64():
    """64-bit JAX for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def quick():
    """Disables XLA's optimisations, which take most of the time of tiny models."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def pytest_collection_modifyitems(items):
    """The inner loop runs the shared suites on the NNX twin only; a full run runs them on both."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
