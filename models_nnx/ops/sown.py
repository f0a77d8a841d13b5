"""What layers sow for the loss, as ``{path: value}``: checked to be complete, summed over microbatches, reported.

L layer of a stack, E expert.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from models_nnx.config import FeedForward, LayerLayout, ModelConfig

__all__ = [
    "SownError",
    "by_layer",
    "from_layers",
    "load_balance_sum",
    "sown_load",
    "sown_metrics",
    "sown_sums",
]

Sums = Mapping[str, jax.Array]
BALANCE, LOAD = "load_balance", "expert_load"
MOE = FeedForward.MOE


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
    flat = _flat(sown)
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


def sown_metrics(sums: Sums, weight_sum: jax.Array, config: ModelConfig) -> dict[str, jax.Array]:
    """Returns ``{"sown/layers_3/load_balance": value}``: each layer's mean balance and total load.

    Args:
        sums: as from `sown_sums`.
        weight_sum: weight of all that was summed.
        config: which layers there are.
    """
    values = {path: value / weight_sum if _is(path, BALANCE) else value for path, value in sums.items()}
    return {f"sown/{name}": value for name, value in by_layer(values, config).items()}


def by_layer(sown: Any, config: ModelConfig) -> dict[str, jax.Array]:
    """Returns ``{"layers_3/name": value}``, the same names for scanned and unrolled layers.

    Args:
        sown: tree, or ``{path: value}``, of what layers with experts sowed, stacked where they are scanned.
        config: which layers there are.
    """
    flat = _flat(sown)
    found = {}
    for module, layers in _places(config).items():
        names = [path.rpartition("/")[2] for path in flat if path.rpartition("/")[0] == module]
        for name in names:
            values = [flat[f"{module}/{name}"]] if isinstance(layers, str) else flat[f"{module}/{name}"]
            single = [layers] if isinstance(layers, str) else layers
            found |= {f"{layer}/{name}": values[index] for index, layer in enumerate(single)}
    return found


def from_layers(values: Mapping[str, jax.Array], config: ModelConfig) -> dict[str, jax.Array]:
    """Returns ``{path of the module: value}``, stacked where layers are scanned; the way back of `by_layer`.

    Args:
        values: ``{"layers_3": value}`` of all layers with experts.
        config: which layers there are.
    """
    return {
        module: values[layers] if isinstance(layers, str) else jnp.stack([values[name] for name in layers])
        for module, layers in _places(config).items()
    }


def _places(config: ModelConfig) -> dict[str, str | tuple[str, ...]]:
    """Returns ``{path of each module of experts: name of its layer, or of the layers stacked there}``."""
    places: dict[str, str | tuple[str, ...]] = {}
    for stack in config.stacks:
        period, layers = len(stack.cycle), tuple(stack.layers.items())
        if stack.layout is LayerLayout.UNROLLED:
            places |= {f"decoder/{name}/moe": name for name, kind in layers if kind.feed_forward is MOE}
            continue
        for index, kind in enumerate(stack.cycle):
            block = "" if period == 1 else f"block_{index}/"
            if kind.feed_forward is MOE:
                places[f"decoder/{stack.name}/{block}moe"] = tuple(name for name, _ in layers[index::period])
    return places


def _flat(tree: Any) -> dict[str, jax.Array]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): value for path, value in leaves}


def _is(path: str, name: str) -> bool:
    return path.rpartition("/")[2] == name
