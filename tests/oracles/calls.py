"""Counts function calls: a cost that no other job on the machine changes."""

import cProfile
from collections.abc import Callable

__all__ = ["calls"]


def calls(function: Callable[[], object]) -> int:
    """Returns how many function calls running ``function`` takes."""
    profile = cProfile.Profile()
    profile.runcall(function)
    return sum(entry.callcount for entry in profile.getstats())
