"""Decoding: use of the caches, and choice of the next token."""

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
    """Use of the caches in a call: fill them from a prompt, or read them and add one token."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caching:
    """Use of the caches in one call; static.

    Args:
        use: fill, or read and extend by one token.
        length: positions that the caches of global layers hold.
    """

    use: CacheUse
    length: int

    def __post_init__(self):
        require_choice(self, use=CacheUse)
        require_positive(self, "length")

    def slots(self, window: int | None) -> int:
        """Returns the number of keys in a layer's cache; with a window, the cache is a ring of at most its size."""
        return self.length if window is None else min(window, self.length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Decoding of a batch of rows.

    Args:
        length: positions that the caches hold, prompt and new tokens together.
        temperature: divides the logits before a token is drawn; None chooses the most likely token.
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
        """Returns the `Caching` of a call with caches of this length."""
        return Caching(use=use, length=self.length)
