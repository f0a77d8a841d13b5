"""The gated MLP."""

import dataclasses
import enum

from models_nnx.shared.config.checks import require_choice, require_positive

__all__ = [
    "Activation",
    "MlpConfig",
]


class Activation(enum.StrEnum):
    """Gate activation of the MLP; ``clamped_swiglu`` is gpt-oss's, which clamps gate and up and adds one to up."""

    SILU = "silu"
    GELU = "gelu"
    CLAMPED_SWIGLU = "clamped_swiglu"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MlpConfig:
    """Gated MLP: ``down(activation(gate(x)) * up(x))``."""

    hidden: int
    activation: Activation = Activation.SILU

    def __post_init__(self):
        require_positive(self, "hidden")
        require_choice(self, activation=Activation)
