"""Attention: heads, positions, kernel."""

import dataclasses
import enum

from models_nnx.config.checks import require, require_choice, require_positive

__all__ = [
    "AttentionConfig",
    "AttentionKernel",
]


class AttentionKernel(enum.StrEnum):
    """Which implementation computes attention: our plain dot product, or JAX's own."""

    PLAIN = "plain"
    LIBRARY = "library"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Grouped-query attention with rotary positions.

    Args:
        heads: query heads.
        kv_heads: key and value heads; divides ``heads``.
        head_dim: width of one head; even, because rotary turns pairs.
        rope_theta: base of the rotary wavelengths.
        kernel: the implementation.
    """

    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float = 10_000.0
    kernel: AttentionKernel = AttentionKernel.PLAIN

    def __post_init__(self):
        require_positive(self, "heads", "kv_heads", "head_dim")
        require(
            self.heads % self.kv_heads == 0, "heads", self.heads, f"a multiple of kv_heads={self.kv_heads}"
        )
        require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "an even number (rotary turns pairs)")
        require_choice(self, kernel=AttentionKernel)
        require(self.rope_theta > 1, "rope_theta", self.rope_theta, "a number above 1")
