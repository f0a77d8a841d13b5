"""What layers sow for the loss, as ``{path: value}``: checked to be complete, summed over microbatches, reported.

L layer of a stack, E expert.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from models_nnx.config import ModelConfig

__all__ = [
    "SownError",
    "load_balance_sum",
    "sown_load",
    "sown_metrics",
    "sown_sums",
]

Sums = Mapping[str, jax.Array]
BALANCE, LOAD = "load_balance", "expert_load"


class SownError(ValueError):
    """Layers with experts sowed fewer or more values than there are such layers."""


def sown_sums(sown: Any, weight_sum: jax.Array, config: ModelConfig) -> dict[str, jax.Array]:
    """Returns ``{path: sum}`` that may be added over microbatches: loads as they are, balances times the weight.

    Args:
        sown: tree of ``load_balance`` (``[]`` or ``[L]``) and ``expert_load`` (``[E]`` or ``[L, E]``).
        weight_sum: weight of the microbatch.
        config: says how many layers have experts.

    Raises:
        SownError: a layer's value is missing, or there is one too many; never counted as zero.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(sown)
    flat = {jax.tree_util.keystr(path, simple=True, separator="/"): value for path, value in leaves}
    experts = config.moe.experts if config.moe else 1
    for name, size in ((BALANCE, 1), (LOAD, experts)):
        layers = sum(value.size for path, value in flat.items() if _is(path, name)) // size
        if layers != config.moe_layers:
            raise SownError(
                f"sown {name}: got values of {layers} layers at {sorted(flat)}, expected {config.moe_layers}; "
                "return what each block sows from loops and rematerialised calls"
            )
    return {path: value * weight_sum if _is(path, BALANCE) else value for path, value in flat.items()}


def load_balance_sum(sums: Sums, config: ModelConfig) -> jax.Array | None:
    """Returns the load-balance loss times the weight, a mean over the layers with experts; None without any."""
    if config.moe is None:
        return None
    layers = [value for path, value in sorted(sums.items()) if _is(path, BALANCE)]
    total = functools.reduce(jnp.add, map(jnp.sum, layers))
    return config.moe.load_balance * total / config.moe_layers


def sown_load(sums: Sums, module: str) -> jax.Array:
    """Returns the load of the experts of the module at a path, ``[E]`` or ``[L, E]``."""
    return sums[f"{module}/{LOAD}"]


def sown_metrics(sums: Sums, weight_sum: jax.Array) -> dict[str, jax.Array]:
    """Returns ``{"sown/path": value}``: each layer's mean balance and total load."""
    return {
        f"sown/{path}": value / weight_sum if _is(path, BALANCE) else value for path, value in sums.items()
    }


def _is(path: str, name: str) -> bool:
    return path.rpartition("/")[2] == name
