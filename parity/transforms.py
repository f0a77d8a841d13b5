"""Transforms of weight rules, such as ``Permute``; defined in `parity.builds.weights.transforms`."""

from parity.builds.weights.transforms import *  # noqa: F403
from parity.builds.weights.transforms import __all__ as __all__
