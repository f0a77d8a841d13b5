"""Norms: how their scale is stored, and where they stand."""

import enum

__all__ = [
    "NormPlacement",
    "NormScale",
]


class NormScale(enum.StrEnum):
    """Whether a norm's parameter is its scale, or the scale's offset from one (Gemma)."""

    DIRECT = "direct"
    OFFSET = "offset"


class NormPlacement(enum.StrEnum):
    """Whether attention and feed-forward have a norm before them only, or after them as well."""

    PRE = "pre"
    PRE_AND_POST = "pre_and_post"
