"""Gated MLPs, one per expert, applied to the tokens that chose them: dropless, or dropping beyond a capacity.

B batch, T position, E expert, K choice of a token, C place in an expert's capacity, D embed, F hidden,
N token of a device, R row: one choice of one token.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from models_nnx.shared.config import Biases, Dispatch, MoeConfig
from models_nnx.shared.mesh import as_axes
from models_nnx.shared.ops.grouped import grouped_product
from models_nnx.shared.ops.mlp import gated_activation
from models_nnx.shared.ops.projections import einsum, kernel_init
from models_nnx.shared.ops.remat import tag
from models_nnx.shared.ops.routing import Routing
from models_nnx.shared.sharding import Rules, constrain, spec_here

__all__ = [
    "ExpertWeights",
    "expert_parameters",
    "experts",
]

EMBEDDED = ("activation_batch", "activation_length", "activation_embed")
ROUTED = ("activation_batch", "activation_length", None)
SLOTTED = ("activation_batch", "activation_length", None, None)
GATHERED = ("activation_batch", None, None)
ARRIVING = (None, "activation_batch", None, "activation_embed")
DISPATCHED = ("activation_expert", "activation_batch_no_exp", None, "activation_embed")
HIDDEN = ("activation_expert", "activation_batch_no_exp", None, "activation_mlp")
WEIGHT_AXES = {
    "gate": ("activation_expert", None, "activation_mlp"),
    "up": ("activation_expert", None, "activation_mlp"),
    "down": ("activation_expert", "activation_mlp", None),
    "gate_bias": ("activation_expert", "activation_mlp"),
    "up_bias": ("activation_expert", "activation_mlp"),
    "down_bias": ("activation_expert", None),
}


class ExpertWeights(NamedTuple):
    """The experts' weights in the compute dtype; the biases are None if there are none."""

    gate: jax.Array
    up: jax.Array
    down: jax.Array
    gate_bias: jax.Array | None = None
    up_bias: jax.Array | None = None
    down_bias: jax.Array | None = None


PARAMETERS = {
    "gate": (kernel_init("EBCD,EDF->EBCF"), "EDF", ("expert", "embed", "mlp")),
    "up": (kernel_init("EBCD,EDF->EBCF"), "EDF", ("expert", "embed", "mlp")),
    "down": (kernel_init("EBCF,EFD->EBCD"), "EFD", ("expert", "mlp", "embed")),
    "gate_bias": (jax.nn.initializers.zeros, "EF", ("expert", "mlp")),
    "up_bias": (jax.nn.initializers.zeros, "EF", ("expert", "mlp")),
    "down_bias": (jax.nn.initializers.zeros, "ED", ("expert", "embed")),
}


def expert_parameters(
    moe: MoeConfig,
) -> dict[str, tuple[jax.nn.initializers.Initializer, str, tuple[str, ...]]]:
    """Returns ``{name: (initializer, letters of the shape, logical axes)}`` of the experts' parameters."""
    biased = moe.biases is Biases.TRAINED
    return {name: parts for name, parts in PARAMETERS.items() if biased or not name.endswith("_bias")}


def experts(
    x_BTD: jax.Array, routing: Routing, weights: ExpertWeights, moe: MoeConfig, rules: Rules
) -> jax.Array:
    """Returns the weighted sum of each token's experts, ``[B, T, D]``; zeros for padding.

    Args:
        x_BTD: the activation.
        routing: choices and weights of each token.
        weights: weights of the experts, gate and up ``[E, D, F]``, down ``[E, F, D]``.
        moe: kind and settings of the dispatch.
        rules: ordered logical axis rules.

    Raises:
        ShardingError: the mesh does not fit the experts.
    """
    apply = {Dispatch.DROPLESS: _dropless, Dispatch.DROPPING: _dropping}[moe.dispatch]
    return apply(x_BTD, routing, weights, moe, rules)


def _dropping(x_BTD, routing: Routing, weights: ExpertWeights, moe: MoeConfig, rules: Rules):
    """Runs each expert on up to its capacity of tokens per row, in order of position; it drops later tokens.

    Source: Lepikhin et al. 2020, "GShard"; one-hot einsums, so that the compiler sees an all-to-all.
    """
    dispatch_BTEC, combine_BTEC = _slots(routing, moe, rules)

    def project(equation, x, name, axes):
        out = einsum(equation, x, getattr(weights, name), out_axes=axes, rules=rules)
        bias = getattr(weights, f"{name}_bias")
        if bias is None:
            return out
        return out + constrain(bias, (axes[0], axes[-1]), rules)[:, None, None]

    dispatch_BTEC, combine_BTEC = dispatch_BTEC.astype(x_BTD.dtype), combine_BTEC.astype(x_BTD.dtype)
    x_EBCD = einsum("BTD,BTEC->EBCD", x_BTD, dispatch_BTEC, out_axes=ARRIVING, rules=rules)
    x_EBCD = constrain(x_EBCD, DISPATCHED, rules)
    gate_EBCF = project("EBCD,EDF->EBCF", x_EBCD, "gate", HIDDEN)
    up_EBCF = project("EBCD,EDF->EBCF", x_EBCD, "up", HIDDEN)
    hidden_EBCF = tag(gated_activation(gate_EBCF, up_EBCF, moe.activation), "mlp_hidden")
    out_EBCD = constrain(project("EBCF,EFD->EBCD", hidden_EBCF, "down", DISPATCHED), ARRIVING, rules)
    return einsum("EBCD,BTEC->BTD", out_EBCD, combine_BTEC, out_axes=EMBEDDED, rules=rules)


def _slots(routing: Routing, moe: MoeConfig, rules: Rules) -> tuple[jax.Array, jax.Array]:
    """Returns two arrays ``[B, T, E, C]``: 1 at the place of each token, and the weight of the choice there."""
    wide = routing.weights_BTK.dtype
    chosen_BTKE = jax.nn.one_hot(routing.experts_BTK, moe.experts, dtype=wide)
    weights_BTE = jnp.sum(chosen_BTKE * routing.weights_BTK[..., None], axis=2)
    chosen_BTE = jnp.sum(jax.nn.one_hot(routing.experts_BTK, moe.experts, dtype=jnp.int32), axis=2)
    place_BTE = jnp.cumsum(constrain(chosen_BTE, GATHERED, rules), axis=1) - 1
    place_BTE = constrain(place_BTE, ROUTED, rules)
    capacity = moe.capacity(chosen_BTE.shape[1])
    # one_hot returns zeros for no place and for a place beyond the capacity.
    place_BTE = jnp.where(chosen_BTE == 1, place_BTE, capacity)
    dispatch_BTEC = constrain(jax.nn.one_hot(place_BTE, capacity, dtype=wide), SLOTTED, rules)
    return dispatch_BTEC, dispatch_BTEC * weights_BTE[..., None]


class Parts(NamedTuple):
    """The mesh axes that shard the experts, those among them that also shard the tokens, and the experts' width."""

    experts: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


WHOLE = Parts()


def _dropless(x_BTD, routing: Routing, weights: ExpertWeights, moe: MoeConfig, rules: Rules):
    """Computes every choice: each device sorts its rows by expert and multiplies them group by group.

    Devices that share the experts gather each other's tokens and sum their parts. Without a limit on the tokens of an
    expert, that moves less than the largest all-to-all would.
    """
    named = {name: weight for name, weight in weights._asdict().items() if weight is not None}
    arguments = (x_BTD, routing.experts_BTK, routing.weights_BTK, named)
    axes = (EMBEDDED, ROUTED, ROUTED, {name: WEIGHT_AXES[name] for name in named})
    specs = jax.tree.map(lambda x, names: spec_here(names, x.shape, rules), arguments, axes)
    if specs[0] is None:
        return _dropless_local(*arguments, moe=moe)
    arguments = jax.tree.map(lambda x, names: constrain(x, names, rules), arguments, axes)
    batch, sharing, hidden = (as_axes(specs[0][0]), *(as_axes(specs[3]["gate"][dim]) for dim in (0, 2)))
    parts = Parts(experts=sharing, tokens=tuple(axis for axis in sharing if axis in batch), hidden=hidden)
    local = functools.partial(_dropless_local, moe=moe, parts=parts)
    # Unchecked, because a vmap over the stages of a pipeline does not mark constants as varying over them.
    return jax.shard_map(local, in_specs=specs, out_specs=specs[0], check_vma=False)(*arguments)


def _dropless_local(x_BTD, experts_BTK, weights_BTK, weights, *, moe: MoeConfig, parts: Parts = WHOLE):
    """Applies one device's part of the experts to one device's part of the tokens."""
    batch, length, embed = x_BTD.shape
    held = weights["gate"].shape[0]

    def gather(x):
        x_ND = x.reshape(batch * length, -1)
        return jax.lax.all_gather(x_ND, parts.tokens, tiled=True) if parts.tokens else x_ND

    x_ND, experts_NK, weights_NK = gather(x_BTD), gather(experts_BTK), gather(weights_BTK)
    first = held * jax.lax.axis_index(parts.experts) if parts.experts else 0
    expert_R = experts_NK.reshape(-1) - first
    expert_R = jnp.where((expert_R >= 0) & (expert_R < held), expert_R, held)
    if parts.hidden and "down_bias" in weights:  # only one of the devices whose parts are summed adds it
        brings = jax.lax.axis_index(parts.hidden) == 0
        weights = {**weights, "down_bias": jnp.where(brings, weights["down_bias"], 0)}
    x_RD = jnp.broadcast_to(x_ND[:, None], (*experts_NK.shape, embed)).reshape(-1, embed)
    out_RD = _grouped(x_RD, expert_R, weights, moe)
    out_NKD = out_RD.reshape(*experts_NK.shape, embed).astype(weights_NK.dtype) * weights_NK[..., None]
    out_ND = jnp.sum(out_NKD, axis=1).astype(x_BTD.dtype)
    summed = tuple(axis for axis in (*parts.experts, *parts.hidden) if axis not in parts.tokens)
    out_ND = jax.lax.psum(out_ND, summed) if summed else out_ND
    out_ND = jax.lax.psum_scatter(out_ND, parts.tokens, tiled=True) if parts.tokens else out_ND
    return out_ND.reshape(batch, length, embed)


def _grouped(x_RD, expert_R, weights: dict[str, jax.Array], moe: MoeConfig) -> jax.Array:
    """Returns the expert's output for each row, ``[R, D]``; zeros if ``expert_R`` is no expert of this device."""
    held = weights["gate"].shape[0]
    order_R = jnp.argsort(expert_R)
    back_R = jnp.argsort(order_R)
    one_hot_RE = jax.nn.one_hot(expert_R[order_R], held, dtype=x_RD.dtype)
    rows_E = jnp.sum(jax.nn.one_hot(expert_R, held, dtype=jnp.int32), axis=0)
    # Rows past the last group have arbitrary values after a grouped product, forward and backward.
    mine_R1 = (jnp.arange(expert_R.shape[0]) < jnp.sum(rows_E))[:, None]

    def project(x, name):
        out = grouped_product(x, weights[name], rows_E)
        bias = weights.get(f"{name}_bias")
        return out if bias is None else out + one_hot_RE @ bias

    sorted_RD = jnp.where(mine_R1, _permute(x_RD, order_R, back_R), 0)
    hidden_RF = gated_activation(project(sorted_RD, "gate"), project(sorted_RD, "up"), moe.activation)
    out_RD = project(tag(hidden_RF, "mlp_hidden"), "down")
    return _permute(jnp.where(mine_R1, out_RD, 0), back_R, order_R)


@jax.custom_vjp
def _permute(x_RD, order_R, back_R):
    """Returns ``x_RD[order_R]``; its gradient is a gather by ``back_R``, while JAX's would be a scatter."""
    return x_RD[order_R]


def _permute_forward(x_RD, order_R, back_R):
    return x_RD[order_R], back_R


def _permute_backward(back_R, grad_RD):
    return grad_RD[back_R], None, None


_permute.defvjp(_permute_forward, _permute_backward)
