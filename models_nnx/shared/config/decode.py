"""Decoding: what a call does with the caches, and how the next token is chosen."""

import dataclasses
import enum
import math

from models_nnx.shared.config.checks import require_choice, require_number, require_positive

__all__ = [
    "CacheUse",
    "Caching",
    "DecodeConfig",
]


class CacheUse(enum.StrEnum):
    """Whether a call computes a prompt and fills the caches, or one token and reads them."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caching:
    """What a call does with the caches; static.

    Args:
        use: fill, or read and extend by one token.
        length: positions that global layers remember.
    """

    use: CacheUse
    length: int

    def __post_init__(self):
        require_choice(self, use=CacheUse)
        require_positive(self, "length")

    def slots(self, window: int | None) -> int:
        """Returns how many keys a layer remembers: a ring of the window's size where it has a window."""
        return self.length if window is None else min(window, self.length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Decoding of a batch of rows.

    Args:
        length: positions that the caches hold, prompt and new tokens together.
        temperature: divides the logits before a token is drawn; None takes the likeliest.
    """

    length: int
    temperature: float | None = None

    def __post_init__(self):
        require_positive(self, "length")
        if self.temperature is not None:
            require_number(
                self, "temperature", math.ulp(0.0), math.inf, "a number above 0, or none for greedy"
            )

    def caching(self, use: CacheUse) -> Caching:
        """Returns what a call does with caches of this length."""
        return Caching(use=use, length=self.length)
