"""Attention: heads, positions, kernel."""

import dataclasses
import enum

from models_nnx.config.checks import require, require_choice, require_positive

__all__ = [
    "AttentionConfig",
    "AttentionKernel",
    "Span",
]


class AttentionKernel(enum.StrEnum):
    """Which implementation computes attention: our plain dot product, or JAX's own."""

    PLAIN = "plain"
    LIBRARY = "library"


class Span(enum.StrEnum):
    """How far a layer looks back: over a sliding window, or over the whole document."""

    LOCAL = "local"
    GLOBAL = "global"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Grouped-query attention with rotary positions.

    Args:
        heads: query heads.
        kv_heads: key and value heads; divides ``heads``.
        head_dim: width of one head; even, because rotary turns pairs.
        rope_theta: base of the rotary wavelengths.
        local_rope_theta: the same in local layers; None where it is ``rope_theta``.
        cycle: spans of the layers, repeated over the depth.
        window: how many keys a local layer sees, the query's own among them; None without local layers.
        kernel: the implementation.
    """

    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float = 10_000.0
    local_rope_theta: float | None = None
    cycle: tuple[Span, ...] = (Span.GLOBAL,)
    window: int | None = None
    kernel: AttentionKernel = AttentionKernel.PLAIN

    def __post_init__(self):
        require_positive(self, "heads", "kv_heads", "head_dim")
        require(
            self.heads % self.kv_heads == 0, "heads", self.heads, f"a multiple of kv_heads={self.kv_heads}"
        )
        require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "an even number (rotary turns pairs)")
        require_choice(self, kernel=AttentionKernel)
        require(self.rope_theta > 1, "rope_theta", self.rope_theta, "a number above 1")
        self._check_spans()

    def _check_spans(self):
        spans = bool(self.cycle) and all(isinstance(span, Span) for span in self.cycle)
        require(spans, "cycle", self.cycle, "at least one Span: local or global")
        if Span.LOCAL in self.cycle:
            require_positive(self, "window")
            return
        require(self.window is None, "window", self.window, "None: no layer of the cycle is local")
        theta = self.local_rope_theta
        require(theta is None, "local_rope_theta", theta, "None: no layer of the cycle is local")

    def theta(self, span: Span) -> float:
        """Returns the rotary base of layers of a span."""
        if span is Span.GLOBAL or self.local_rope_theta is None:
            return self.rope_theta
        return self.local_rope_theta

    def reach(self, span: Span) -> int | None:
        """Returns how many keys layers of a span see, None for all."""
        return self.window if span is Span.LOCAL else None
