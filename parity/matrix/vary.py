"""Variations of the decoders' settings: ablations for ``parity bisect``, and sizes that can shrink."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from models_nnx.shared.config import ConfigError, ModelConfig
from parity.matrix.decoders import Variant

__all__ = ["ablations", "sizes"]

PLAINEST: tuple[Mapping[str, str], ...] = (
    {"remat.policy": "none", "remat.names": ""},
    {"layout": "unrolled"},
    {"dropout": "0.0"},
    {"train.accumulation": "1"},
    {"train.vocab_tiles": "1"},
    {"train.moments": "like_parameters"},
    {"compute_dtype": "float32"},
    {"param_dtype": "float32"},
    {"head": "untied"},
    {"scan_axis": "1"},
    {"attention.kernel": "plain"},
    {"moe.dispatch": "dropless"},
    {"moe.load_balance": "0.0"},
    {"mtp": "none"},
    {"layer_schedule": "plain"},
    {"layers": "1"},
)
"""Settings that switch something off; likely causes of a structural difference come first."""

SIZES = (
    "layers",
    "embed",
    "vocab",
    "attention.heads",
    "attention.kv_heads",
    "attention.head_dim",
    "mlp.hidden",
)


def sizes(config: ModelConfig) -> dict[str, int]:
    """Returns the sizes of a config that can be reduced, by the name of their setting."""
    found: dict[str, Any] = {name: _field(config, name) for name in SIZES}
    return {name: size for name, size in found.items() if isinstance(size, int)}


def _field(config: ModelConfig, name: str) -> Any:
    return functools.reduce(lambda part, field: getattr(part, field, None), name.split("."), config)


def ablations(variant: Variant) -> Sequence[Mapping[str, str]]:
    """Returns the settings of `PLAINEST` that are valid for a variant and change it."""
    return _Ablations(variant)


@dataclasses.dataclass(frozen=True)
class _Ablations(Sequence[Mapping[str, str]]):
    """Settings that are checked on first access, because hundreds of cases have them and few runs use them."""

    variant: Variant

    @functools.cached_property
    def _found(self) -> Sequence[Mapping[str, str]]:
        return tuple(filter(self._changes, PLAINEST))

    def _changes(self, settings: Mapping[str, str]) -> bool:
        try:
            return self.variant.override(settings) != self.variant
        except ConfigError:
            return False

    def __getitem__(self, index: Any) -> Any:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)
