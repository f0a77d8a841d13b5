"""Values sown for the loss, as ``{path: value}``: check of completeness, sums over microbatches, metrics.

L layer of a stack, E expert.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models_nnx.shared.config import FeedForward, LayerLayout, ModelConfig, PipelinedStack, Stack

__all__ = [
    "SownError",
    "by_layer",
    "flat_sown",
    "from_layers",
    "load_balance_sum",
    "mtp_sum",
    "mtp_sums",
    "sown_load",
    "sown_metrics",
    "sown_sums",
]

Sums = Mapping[str, jax.Array]
BALANCE, LOAD = "load_balance", "expert_load"
AHEAD_LOSS, AHEAD_WEIGHT, ACCEPTED = "loss_sum", "weight_sum", "accepted_sum"
MOE = FeedForward.MOE


class SownError(ValueError):
    """A number of sown values that differs from the number of layers with experts, or of predictors."""


def sown_sums(sown: Any, weight_sum: jax.Array, config: ModelConfig) -> dict[str, jax.Array]:
    """Returns ``{path: sum}`` to add over microbatches: loads unchanged, balances multiplied by the weight.

    Args:
        sown: tree of ``load_balance`` (``[]`` or ``[L]``) and ``expert_load`` (``[E]`` or ``[L, E]``).
        weight_sum: weight of the microbatch.
        config: determines the number of layers with experts.

    Raises:
        SownError: a layer's value is missing or surplus; a missing value never counts as zero.
    """
    flat = flat_sown(sown)
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
    """Returns the load-balance loss times the weight, a mean over the layers with experts; None without experts."""
    if config.moe is None:
        return None
    layers = [value for path, value in sorted(sums.items()) if _is(path, BALANCE)]
    total = functools.reduce(jnp.add, map(jnp.sum, layers))
    return config.moe.load_balance * total / config.moe_layers


def mtp_sums(left: Any, config: ModelConfig, *, accepted: bool = False) -> dict[str, jax.Array]:
    """Returns ``{"mtp/depth_1/loss_sum": sum}`` of the values that predictors sowed, complete.

    Args:
        left: tree of these values; empty if the model has no predictors.
        config: determines the predictors.
        accepted: True if they were also compared with the main model's choices.

    Raises:
        SownError: a value is missing or surplus; a missing value never counts as zero.
    """
    flat = flat_sown(left)
    each = (AHEAD_LOSS, AHEAD_WEIGHT, *([ACCEPTED] if accepted else []))
    names = config.mtp.names if config.mtp else ()
    expected = {f"mtp/{name}/{value}" for name in names for value in each}
    if set(flat) != expected:
        raise SownError(
            f"sown by predictors of further tokens: got {sorted(flat)}, expected {sorted(expected)}; give the model "
            "`ahead` and collect what each depth sows before anything else takes it"
        )
    return flat


def mtp_sum(sums: Sums, rate: jax.Array | None) -> jax.Array | None:
    """Returns the contribution of the further tokens to a sum of losses; None if there are none.

    Args:
        sums: as from `mtp_sums`.
        rate: as from `mtp_rate`.
    """
    losses = [value for path, value in sorted(sums.items()) if _is(path, AHEAD_LOSS)]
    return rate * functools.reduce(jnp.add, losses) if losses and rate is not None else None


def mtp_metrics(sums: Sums) -> dict[str, jax.Array]:
    """Returns ``{"mtp/depth_1/loss": mean}``, and each depth's share of accepted tokens if it was sown.

    Args:
        sums: as from `mtp_sums`, perhaps among others.
    """
    names = {AHEAD_LOSS: "loss", ACCEPTED: "acceptance"}
    found = {}
    for path, value in sums.items():
        depth, _, name = path.rpartition("/")
        if path.startswith("mtp/") and name in names:
            found[f"{depth}/{names[name]}"] = value / jnp.maximum(sums[f"{depth}/{AHEAD_WEIGHT}"], 1)
    return found


def sown_load(sums: Sums, module: str) -> jax.Array:
    """Returns the load of the experts of the module at a path, ``[E]`` or ``[L, E]``."""
    return sums[f"{module}/{LOAD}"]


def sown_metrics(sums: Sums, weight_sum: jax.Array, config: ModelConfig) -> dict[str, jax.Array]:
    """Returns ``{"sown/layers_3/load_balance": value}``: each layer's mean balance and total load; `mtp_metrics`.

    Args:
        sums: as from `sown_sums`, and from `mtp_sums` if there are any.
        weight_sum: weight of all summed microbatches.
        config: determines the layers.
    """
    values = {path: value / weight_sum if _is(path, BALANCE) else value for path, value in sums.items()}
    layers = {f"sown/{name}": value for name, value in by_layer(values, config).items()}
    return {**layers, **mtp_metrics(sums)}


def by_layer(sown: Any, config: ModelConfig) -> dict[str, jax.Array]:
    """Returns ``{"layers_3/name": value}``, the same names for scanned and unrolled layers.

    Args:
        sown: tree, or ``{path: value}``, of values that layers with experts sowed, stacked if they are scanned.
        config: determines the layers.
    """
    flat = flat_sown(sown)
    found = {}
    for module, layers in _places(config).items():
        names = [path.rpartition("/")[2] for path in flat if path.rpartition("/")[0] == module]
        for name in names:
            value = flat[f"{module}/{name}"]
            found |= {f"{layer}/{name}": value[index] for index, layer in np.ndenumerate(layers)}
    return found


def from_layers(values: Mapping[str, jax.Array], config: ModelConfig) -> dict[str, jax.Array]:
    """Returns ``{path of the module: value}``, stacked if layers are scanned; the inverse of `by_layer`.

    Args:
        values: ``{"layers_3": value}`` of all layers with experts.
        config: determines the layers.
    """
    found = {}
    for module, layers in _places(config).items():
        stacked = [values[name] for name in layers.flat]
        found[module] = jnp.stack(stacked).reshape(*layers.shape, *stacked[0].shape)
    return found


def _places(config: ModelConfig) -> dict[str, np.ndarray]:
    """Returns ``{path of each module of experts: names of the layers stacked there}``, an array like the stack."""
    places: dict[str, np.ndarray] = {}
    for stack in config.stacks:
        names = np.array(tuple(stack.layers))
        if isinstance(stack, PipelinedStack):
            lengths = [length for _, length in config.staging.axes]
            held = names.reshape(*lengths, *_held(config.stage.stacks[0]))
            places |= _modules(f"decoder/{stack.name}/stages", config.stage.stacks[0], held)
        else:
            places |= _modules("decoder", stack, names.reshape(_held(stack)))
    if config.mtp and config.ahead_layer.feed_forward is MOE:
        places |= {f"mtp/{name}/block/moe": np.array(f"mtp_{name}") for name in config.mtp.names}
    return places


def _held(stack: Stack) -> tuple[int, ...]:
    """Returns the shape of a stack's layers: ``(repeats, period)`` if scanned, else ``(layers,)``."""
    period = len(stack.cycle)
    return (stack.repeats * period,) if stack.layout is LayerLayout.UNROLLED else (stack.repeats, period)


def _modules(where: str, stack: Stack, names: np.ndarray) -> dict[str, np.ndarray]:
    """Returns ``{path: names}`` of the modules of experts, each an index of the last dimension of ``names``."""
    period = len(stack.cycle)
    if stack.layout is LayerLayout.UNROLLED:
        modules = list(stack.layers)
    else:
        modules = [stack.name] if period == 1 else [f"{stack.name}/block_{index}" for index in range(period)]
    return {
        f"{where}/{module}/moe": names[..., index]
        for index, module in enumerate(modules)
        if stack.cycle[index % period].feed_forward is MOE
    }


def flat_sown(tree: Any) -> dict[str, jax.Array]:
    """Returns ``{path: value}`` of a tree of sown values."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): value for path, value in leaves}


def _is(path: str, name: str) -> bool:
    return path.rpartition("/")[2] == name
