"""Scaling of rotary positions beyond the context length of pretraining."""

import dataclasses
import enum
import math

from models_nnx.shared.config.checks import require, require_choice, require_number, require_positive

__all__ = [
    "Boundaries",
    "LinearScaling",
    "RotaryScaling",
    "YarnScaling",
]


class Boundaries(enum.StrEnum):
    """Ends of YaRN's blend between pairs: rounded outwards to whole pairs, or exact."""

    WHOLE = "whole"
    EXACT = "exact"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearScaling:
    """Stretches all wavelengths by ``factor`` (Chen et al. 2023)."""

    factor: float

    def __post_init__(self):
        require_number(self, "factor", 1.0, math.inf, "a number >= 1")

    angle_factor = 1.0
    score_factor = 1.0

    def stretch(self, half: int, theta: float) -> tuple[float, ...]:
        """Returns the factor of each of ``half`` wavelengths."""
        return (self.factor,) * half


@dataclasses.dataclass(frozen=True, kw_only=True)
class YarnScaling:
    """Stretches long wavelengths by ``factor``, keeps short ones and blends between (Peng et al. 2023).

    Args:
        factor: ratio of the new context length to the original one.
        original_length: context length of pretraining.
        beta_fast, beta_slow: rotations over the original length above which a wavelength is kept, and below which it
            is stretched.
        boundaries: rounding of the blend's ends.
        angle_factor: multiplies sine and cosine, and so queries and keys.
        score_factor: multiplies attention scores (DeepSeek's alternative to ``angle_factor``).
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    boundaries: Boundaries = Boundaries.WHOLE
    angle_factor: float = 1.0
    score_factor: float = 1.0

    def __post_init__(self):
        require_number(self, "factor", 1.0, math.inf, "a number >= 1")
        require_positive(self, "original_length")
        require_number(self, "beta_slow", math.ulp(0.0), math.inf, "a number above 0")
        fast = self.beta_fast
        require(fast > self.beta_slow, "beta_fast", fast, f"a number above beta_slow={self.beta_slow}")
        require_choice(self, boundaries=Boundaries)
        for field in ("angle_factor", "score_factor"):
            require_number(self, field, math.ulp(0.0), math.inf, "a number above 0")

    def stretch(self, half: int, theta: float) -> tuple[float, ...]:
        """Returns the factor of each of ``half`` wavelengths."""

        def pair(rotations: float) -> float:
            return half * math.log(self.original_length / (2 * math.pi * rotations)) / math.log(theta)

        low, high = pair(self.beta_fast), pair(self.beta_slow)
        if self.boundaries is Boundaries.WHOLE:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * half - 1)
        width = high - low if high > low else 0.001
        stretched = [min(max((index - low) / width, 0.0), 1.0) for index in range(half)]
        return tuple(1 / (part / self.factor + 1 - part) for part in stretched)


RotaryScaling = LinearScaling | YarnScaling
