"""Norms: stored form of the scale, and placement."""

import enum

__all__ = [
    "NormPlacement",
    "NormScale",
]


class NormScale(enum.StrEnum):
    """Parameter of a norm: its scale, or the scale's offset from one (Gemma)."""

    DIRECT = "direct"
    OFFSET = "offset"


class NormPlacement(enum.StrEnum):
    """Norms of attention and feed-forward: only before them, or before and after."""

    PRE = "pre"
    PRE_AND_POST = "pre_and_post"
