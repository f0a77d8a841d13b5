"""Multi-token prediction: the model learns to predict further tokens in addition to the next one."""

import dataclasses
import math

from models_nnx.shared.config.checks import require_number, require_positive

__all__ = ["MtpConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MtpConfig:
    """Predictors after the main model, one after the other; they share its embedding and head.

    Args:
        depth: K, tokens predicted beyond the next one, with one block each.
        loss_scale: weight of the mean of their cross-entropies in the loss.

    Source: DeepSeek-AI 2024, "DeepSeek-V3", section 2.2.
    """

    depth: int = 1
    loss_scale: float = 0.3

    def __post_init__(self):
        require_positive(self, "depth")
        require_number(
            self, "loss_scale", math.ulp(0.0), math.inf, "a number above 0; set mtp to None for none"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The predictors by name, nearest token first."""
        return tuple(f"depth_{number}" for number in range(1, self.depth + 1))
