"""The training step and its optimizer."""

import dataclasses
import enum
import math

from models_nnx.shared.config.checks import require, require_choice, require_number, require_positive

__all__ = [
    "MomentSharding",
    "OptimizerConfig",
    "TrainConfig",
]


class MomentSharding(enum.StrEnum):
    """Placement of optimizer moments: like their parameter, or sharded over ``data`` as well (ZeRO-1)."""

    LIKE_PARAMETERS = "like_parameters"
    ZERO1 = "zero1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW with linear warm-up and cosine decay, after a global-norm clip.

    Args:
        learning_rate: peak, reached after ``warmup_steps`` updates.
        final_learning_rate: rate at the end of the decay, and after ``total_steps``.
        warmup_steps, total_steps: lengths in updates; warm-up is the shorter.
        b1, b2, epsilon, weight_decay: parameters of AdamW.
        clip_norm: largest global norm of the gradient.
        max_bad_steps: number of consecutive non-finite updates, or spikes, that are skipped before one is applied.
        spike_window: number of losses that a loss is compared with; 0 disables the check.
        spike_factor: a loss is a spike if it is more than this many standard deviations above their mean.
    """

    learning_rate: float = 3e-2
    final_learning_rate: float = 0.0
    warmup_steps: int = 2
    total_steps: int = 100
    b1: float = 0.9
    b2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    max_bad_steps: int = 5
    spike_window: int = 0
    spike_factor: float = 6.0

    def __post_init__(self):
        require_positive(self, "warmup_steps", "total_steps", "max_bad_steps")
        require(
            self.warmup_steps < self.total_steps, "warmup_steps", self.warmup_steps, "less than total_steps"
        )
        for field in ("learning_rate", "epsilon", "clip_norm", "spike_factor"):
            require_number(self, field, math.ulp(0.0), math.inf, "a number above 0")
        for field in ("b1", "b2"):
            require_number(self, field, 0.0, 1.0, "a rate in [0, 1)")
        require_number(self, "weight_decay", 0.0, math.inf, "a number >= 0")
        below = math.nextafter(self.learning_rate, math.inf)
        require_number(
            self, "final_learning_rate", 0.0, below, f"a number in [0, learning_rate={self.learning_rate}]"
        )
        window = self.spike_window
        whole = isinstance(window, int) and not isinstance(window, bool) and (window == 0 or window > 1)
        require(whole, "spike_window", window, "0, or a whole number above 1: one loss has no spread")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Configuration of a training step.

    Args:
        optimizer: the update rule.
        z_loss: weight of the squared log-partition penalty.
        accumulation: microbatches a step accumulates gradients over; divides the batch.
        moments: placement of the optimizer's moments.
        vocab_tiles: number of vocabulary tiles in the loss; divides the vocabulary. 1 computes all logits at once.
    """

    optimizer: OptimizerConfig = OptimizerConfig()
    z_loss: float = 1e-4
    accumulation: int = 1
    moments: MomentSharding = MomentSharding.LIKE_PARAMETERS
    vocab_tiles: int = 1

    def __post_init__(self):
        require_positive(self, "accumulation", "vocab_tiles")
        require_choice(self, moments=MomentSharding)
        require(self.z_loss >= 0, "z_loss", self.z_loss, "a number >= 0")
