"""One frozen configuration for both twins, composed of small parts and validated on construction."""

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Any

from models_nnx.sharding import DEFAULT_RULES, Rules

__all__ = [
    "CHECKPOINT_NAMES",
    "Activation",
    "AttentionConfig",
    "AttentionKernel",
    "ConfigError",
    "Head",
    "LayerLayout",
    "MlpConfig",
    "ModelConfig",
    "MomentSharding",
    "OptimizerConfig",
    "RematConfig",
    "RematPolicy",
    "TrainConfig",
    "override",
]

CHECKPOINT_NAMES = ("query", "key", "value", "attention_out", "mlp_hidden")
"""The residuals a block tags, in the order it computes them; what ``RematConfig.names`` may name."""

DTYPES = ("float32", "bfloat16", "float64")


class ConfigError(ValueError):
    """A configuration value breaks a rule; the message names field, value and rule."""

    def __init__(self, field: str, value: object, rule: str):
        super().__init__(f"config field {field}: got {value!r}, expected {rule}")


class RematPolicy(enum.StrEnum):
    """What the forward pass of a block keeps for its backward pass."""

    NONE = "none"
    FULL = "full"
    MINIMAL = "minimal"
    SAVE_NAMED = "save_named"


class LayerLayout(enum.StrEnum):
    """How the layers lie in the state: one stacked leaf per parameter, or one leaf per layer."""

    SCANNED = "scanned"
    UNROLLED = "unrolled"


class Head(enum.StrEnum):
    """Where the logits come from: a kernel of their own, or the embedding table."""

    UNTIED = "untied"
    TIED = "tied"


class Activation(enum.StrEnum):
    """Gate activation of the MLP."""

    SILU = "silu"
    GELU = "gelu"


class AttentionKernel(enum.StrEnum):
    """Which implementation computes attention: our plain dot product, or JAX's own."""

    PLAIN = "plain"
    LIBRARY = "library"


class MomentSharding(enum.StrEnum):
    """Where optimizer moments lie: with their parameter, or sharded over ``data`` as well (ZeRO-1)."""

    LIKE_PARAMETERS = "like_parameters"
    ZERO1 = "zero1"


def _require(holds: bool, field: str, value: object, rule: str) -> None:
    if not holds:
        raise ConfigError(field, value, rule)


def _require_positive(config: object, *fields: str) -> None:
    for field in fields:
        value = getattr(config, field)
        whole = isinstance(value, int) and not isinstance(value, bool)
        _require(whole and value > 0, field, value, "a whole number above 0")


def _require_choice(config: object, **choices: type[enum.StrEnum]) -> None:
    for field, kind in choices.items():
        value = getattr(config, field)
        _require(
            isinstance(value, kind),
            field,
            value,
            f"one of {', '.join(map(str, kind.__members__.values()))} as {kind.__name__}",
        )


def _require_number(config: object, field: str, low: float, high: float, rule: str) -> None:
    value = getattr(config, field)
    _require(math.isfinite(value) and low <= value < high, field, value, rule)


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
        _require_positive(self, "heads", "kv_heads", "head_dim")
        _require(
            self.heads % self.kv_heads == 0, "heads", self.heads, f"a multiple of kv_heads={self.kv_heads}"
        )
        _require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "an even number (rotary turns pairs)")
        _require_choice(self, kernel=AttentionKernel)
        _require(self.rope_theta > 1, "rope_theta", self.rope_theta, "a number above 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MlpConfig:
    """Gated MLP: ``down(activation(gate(x)) * up(x))``."""

    hidden: int
    activation: Activation = Activation.SILU

    def __post_init__(self):
        _require_positive(self, "hidden")
        _require_choice(self, activation=Activation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RematConfig:
    """Rematerialisation of each block.

    Args:
        policy: what is kept.
        names: the tagged residuals kept by ``save_named``, of `CHECKPOINT_NAMES`; empty otherwise.
    """

    policy: RematPolicy = RematPolicy.NONE
    names: tuple[str, ...] = ()

    def __post_init__(self):
        _require_choice(self, policy=RematPolicy)
        unknown = [name for name in self.names if name not in CHECKPOINT_NAMES]
        _require(not unknown, "remat.names", unknown, f"names of {CHECKPOINT_NAMES}")
        named = self.policy is RematPolicy.SAVE_NAMED
        rule = "at least one name with policy save_named" if named else "no names unless policy is save_named"
        _require(bool(self.names) == named, "remat.names", self.names, rule)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder.

    Args:
        vocab, embed, layers: sizes; ``embed`` is a multiple of the query heads.
        attention, mlp, remat: the parts of a block.
        norm_epsilon: added to the mean square in every RMS norm.
        head: tied or untied logits.
        layout: scanned (stacked parameters) or unrolled layers.
        scan_axis: where the layer axis lies in stacked parameters of rank >= 2 (rank 1 clips it).
        dropout: rate of the two residual dropouts of a block, in [0, 1).
        param_dtype: dtype parameters are stored in.
        compute_dtype: dtype activations are computed in (norms, softmax and losses use float32).
        rules: ordered logical axis rules.
    """

    vocab: int
    embed: int
    layers: int
    attention: AttentionConfig
    mlp: MlpConfig
    norm_epsilon: float = 1e-6
    head: Head = Head.UNTIED
    layout: LayerLayout = LayerLayout.SCANNED
    scan_axis: int = 1
    remat: RematConfig = RematConfig()
    dropout: float = 0.0
    param_dtype: str = "float32"
    compute_dtype: str = "float32"
    rules: Rules = DEFAULT_RULES

    def __post_init__(self):
        _require_positive(self, "vocab", "embed", "layers")
        _require_choice(self, head=Head, layout=LayerLayout)
        heads = self.attention.heads
        _require(self.embed % heads == 0, "embed", self.embed, f"a multiple of attention.heads={heads}")
        _require(self.norm_epsilon > 0, "norm_epsilon", self.norm_epsilon, "a number above 0")
        _require(self.scan_axis in (0, 1), "scan_axis", self.scan_axis, "0 or 1")
        _require(0 <= self.dropout < 1, "dropout", self.dropout, "a rate in [0, 1)")
        for field in ("param_dtype", "compute_dtype"):
            _require(getattr(self, field) in DTYPES, field, getattr(self, field), f"one of {DTYPES}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW with linear warm-up and cosine decay, behind a global-norm clip.

    Args:
        learning_rate: peak, reached after ``warmup_steps`` updates.
        warmup_steps, total_steps: lengths in updates; warm-up is the shorter.
        b1, b2, epsilon, weight_decay: AdamW's own.
        clip_norm: largest global norm of the gradient.
        max_bad_steps: how many consecutive non-finite updates are skipped before one is let through.
    """

    learning_rate: float = 3e-2
    warmup_steps: int = 2
    total_steps: int = 100
    b1: float = 0.9
    b2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    max_bad_steps: int = 5

    def __post_init__(self):
        _require_positive(self, "warmup_steps", "total_steps", "max_bad_steps")
        _require(
            self.warmup_steps < self.total_steps, "warmup_steps", self.warmup_steps, "less than total_steps"
        )
        for field in ("learning_rate", "epsilon", "clip_norm"):
            _require_number(self, field, math.ulp(0.0), math.inf, "a number above 0")
        for field in ("b1", "b2"):
            _require_number(self, field, 0.0, 1.0, "a rate in [0, 1)")
        _require_number(self, "weight_decay", 0.0, math.inf, "a number >= 0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What a training step adds to the model.

    Args:
        optimizer: the update rule.
        z_loss: weight of the squared log-partition penalty.
        accumulation: microbatches a step accumulates gradients over; divides the batch.
        moments: where the optimizer's moments lie.
    """

    optimizer: OptimizerConfig = OptimizerConfig()
    z_loss: float = 1e-4
    accumulation: int = 1
    moments: MomentSharding = MomentSharding.LIKE_PARAMETERS

    def __post_init__(self):
        _require_positive(self, "accumulation")
        _require_choice(self, moments=MomentSharding)
        _require(self.z_loss >= 0, "z_loss", self.z_loss, "a number >= 0")


def override(config: Any, settings: Mapping[str, str]) -> Any:
    """Returns ``config`` with fields replaced by text values, as a command line gives them.

    Args:
        config: any config of this module.
        settings: ``{"embed": "64", "attention.heads": "4"}``; a dot reaches into a part.

    Raises:
        ConfigError: unknown field, text that is no value of the field's type, or a broken rule.
    """
    if not settings:
        return config
    return _override(config, {tuple(name.split(".")): text for name, text in settings.items()}, "")


def _override(config: Any, settings: Mapping[tuple[str, ...], str], prefix: str) -> Any:
    """Replaces all fields of a part at once, so that rules between them see the new values only."""
    fields = [field.name for field in dataclasses.fields(config)]
    changes: dict[str, Any] = {}
    for name in dict.fromkeys(path[0] for path in settings):
        texts = {path[1:]: text for path, text in settings.items() if path[0] == name}
        text = next(iter(texts.values()))
        if name not in fields:
            raise ConfigError(prefix + name, text, f"a field of {type(config).__name__}: {', '.join(fields)}")
        current = getattr(config, name)
        if () in texts:
            changes[name] = _parse(prefix + name, current, texts[()])
        elif dataclasses.is_dataclass(current):
            changes[name] = _override(current, texts, f"{prefix}{name}.")
        else:
            raise ConfigError(prefix + name, text, f"a field without parts, {type(config).__name__}.{name}")
    return dataclasses.replace(config, **changes)


def _parse(field: str, current: Any, text: str) -> Any:
    if isinstance(current, tuple) and all(isinstance(item, str) for item in current):
        return tuple(filter(None, text.split(",")))
    if not isinstance(current, int | float | str):
        raise ConfigError(field, text, f"a single value, but it is {type(current).__name__}")
    try:
        return type(current)(text)
    except ValueError:
        choices = getattr(type(current), "__members__", {})
        known = (
            f"one of {', '.join(map(str, choices.values()))}" if choices else f"a {type(current).__name__}"
        )
        raise ConfigError(field, text, f"{known}, such as {str(current)!r}") from None
