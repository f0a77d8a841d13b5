"""The axes, in the order in which they are asked."""

from collections.abc import Mapping

from parity.bisect import config, module, operation, size, weight
from parity.bisect.axis import Search

__all__ = ["AXES"]

AXES: Mapping[str, Search] = {each.AXIS.name: each.AXIS for each in (operation, module, weight, config, size)}
