"""Attention: heads, positions, spans, scores, kernel."""

import dataclasses
import enum
import math

from models_nnx.shared.config.checks import require, require_choice, require_number, require_positive
from models_nnx.shared.config.moe import Biases
from models_nnx.shared.config.rotary import RotaryScaling

__all__ = [
    "AttentionConfig",
    "AttentionKernel",
    "LatentConfig",
    "QueryKeyNorm",
    "Sinks",
    "Span",
]


class AttentionKernel(enum.StrEnum):
    """Implementation of attention: the plain dot product of `ops.attention`, or ``jax.nn.dot_product_attention``."""

    PLAIN = "plain"
    LIBRARY = "library"


class Span(enum.StrEnum):
    """Attention span of a layer: a sliding window, or the whole document."""

    LOCAL = "local"
    GLOBAL = "global"


class QueryKeyNorm(enum.StrEnum):
    """RMS norm of each head's query and key before rotary positions, or none."""

    NONE = "none"
    HEAD = "head"


class Sinks(enum.StrEnum):
    """Learned score of each head that takes attention weight and contributes no value, or none."""

    NONE = "none"
    LEARNED = "learned"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentConfig:
    """Multi-head latent attention: queries, and keys with values, pass through a narrow layer.

    Args:
        query_rank, key_value_rank: widths of the narrow layers.
        rotary_dim: width of the rotary part of ``head_dim``; all heads share one rotary key.
        value_dim: width of one head's value.

    Source: DeepSeek-AI 2024, DeepSeek-V2, section 2.1.
    """

    query_rank: int
    key_value_rank: int
    rotary_dim: int
    value_dim: int

    def __post_init__(self):
        require_positive(self, "query_rank", "key_value_rank", "rotary_dim", "value_dim")
        even = self.rotary_dim % 2 == 0
        require(even, "rotary_dim", self.rotary_dim, "an even number (rotary rotates pairs)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Grouped-query attention with rotary positions, or latent attention.

    Args:
        heads: query heads.
        kv_heads: key and value heads; divides ``heads``.
        head_dim: width of one head; even, because rotary positions rotate pairs.
        rope_theta: base of the rotary wavelengths.
        rope_scaling: scaling of the wavelengths; None for no scaling.
        local_rope_theta: base in local layers, which then use no scaling; None for the base and scaling of global
            layers.
        cycle: spans of the layers, repeated over the depth.
        window: keys that a query sees in a local layer, its own included; None without local layers.
        query_scalar: scores are divided by its root; None for ``head_dim``.
        soft_cap: scores become ``cap * tanh(score / cap)``; None for no cap.
        query_key_norm: norm of queries and keys.
        sinks: learned sinks, or none.
        biases: biases of the four projections.
        latent: the narrow layers of latent attention; None for grouped-query attention.
        kernel: the implementation.
    """

    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float = 10_000.0
    rope_scaling: RotaryScaling | None = None
    local_rope_theta: float | None = None
    cycle: tuple[Span, ...] = (Span.GLOBAL,)
    window: int | None = None
    query_scalar: float | None = None
    soft_cap: float | None = None
    query_key_norm: QueryKeyNorm = QueryKeyNorm.NONE
    sinks: Sinks = Sinks.NONE
    biases: Biases = Biases.NONE
    latent: LatentConfig | None = None
    kernel: AttentionKernel = AttentionKernel.PLAIN

    def __post_init__(self):
        require_positive(self, "heads", "kv_heads", "head_dim")
        require(
            self.heads % self.kv_heads == 0, "heads", self.heads, f"a multiple of kv_heads={self.kv_heads}"
        )
        require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "an even number (rotary rotates pairs)")
        require_choice(self, kernel=AttentionKernel, query_key_norm=QueryKeyNorm, sinks=Sinks, biases=Biases)
        require(self.rope_theta > 1, "rope_theta", self.rope_theta, "a number above 1")
        for field in ("query_scalar", "soft_cap"):
            if getattr(self, field) is not None:
                require_number(self, field, math.ulp(0.0), math.inf, "a number above 0, or none")
        self._check_spans()
        self._check_latent()
        special = self.soft_cap is not None or self.sinks is not Sinks.NONE or self.latent is not None
        rule = "plain: the library's knows no soft_cap, sinks or latent"
        require(not special or self.kernel is AttentionKernel.PLAIN, "kernel", self.kernel, rule)

    def _check_spans(self):
        spans = bool(self.cycle) and all(isinstance(span, Span) for span in self.cycle)
        require(spans, "cycle", self.cycle, "at least one Span: local or global")
        if Span.LOCAL in self.cycle:
            require_positive(self, "window")
        else:
            require(self.window is None, "window", self.window, "None: no layer of the cycle is local")
        theta = self.local_rope_theta
        if theta is not None:
            rule = "None: no layer of the cycle is local"
            require(Span.LOCAL in self.cycle, "local_rope_theta", theta, rule)
            require(theta > 1, "local_rope_theta", theta, "a number above 1")

    def _check_latent(self):
        if self.latent is None:
            return
        dim, heads = self.latent.rotary_dim, self.heads
        require(dim < self.head_dim, "latent.rotary_dim", dim, f"less than head_dim={self.head_dim}")
        require(self.kv_heads == heads, "kv_heads", self.kv_heads, f"heads={heads} with latent")
        for field in ("query_key_norm", "sinks", "biases"):
            value = getattr(self, field)
            require(value == "none", field, value, "none with latent")

    @property
    def score_scale(self) -> float:
        """Factor of the product of query and key."""
        scale = (self.query_scalar or self.head_dim) ** -0.5
        return scale * self.rope_scaling.score_factor if self.rope_scaling else scale

    @property
    def unturned_dim(self) -> int:
        """Width of the part of ``head_dim`` that is not rotated; 0 without latent attention."""
        return self.head_dim - self.latent.rotary_dim if self.latent else 0

    def rope(self, span: Span) -> tuple[float, RotaryScaling | None]:
        """Returns base and scaling of the rotary wavelengths in layers of a span."""
        if span is Span.GLOBAL or self.local_rope_theta is None:
            return self.rope_theta, self.rope_scaling
        return self.local_rope_theta, None

    def reach(self, span: Span) -> int | None:
        """Returns the number of keys that a query sees in layers of a span; None for all."""
        return self.window if span is Span.LOCAL else None
