"""Routing of tokens: choice of experts, their weights, and load balance.

B batch, T position, E expert, K choice of a token, G group of experts, S expert of a group, D embed.
"""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from models_nnx.shared.config import MoeConfig, Scoring, Weighting
from models_nnx.shared.ops.dtypes import wide_dtype
from models_nnx.shared.sharding import Rules, constrain, out_sharding, spec_here

__all__ = [
    "Routing",
    "balance_bias",
    "expert_load",
    "load_balance",
    "route",
    "router_logits",
]

ROUTED = ("activation_batch", "activation_length", None)


class Routing(NamedTuple):
    """Decisions of the router.

    Attributes:
        experts_BTK: int32 experts taken, best first; E, which is no expert, for padding.
        preferred_BTK: int32 experts that the router prefers, also if other choices were forced; E for padding.
        weights_BTK: factors of their outputs, in float32 or wider.
        shares_BTE: scores that sum to one over the experts, for the load-balance loss.
        margin_BT: score of the last choice minus the best score that was not chosen; with groups, the smaller of both
            choices; inf if nothing was left to choose.
    """

    experts_BTK: jax.Array
    preferred_BTK: jax.Array
    weights_BTK: jax.Array
    shares_BTE: jax.Array
    margin_BT: jax.Array


def router_logits(
    x_BTD: jax.Array, kernel_DE: jax.Array, bias_E: jax.Array | None, rules: Rules
) -> jax.Array:
    """Returns ``[B, T, E]``, computed in float32 (or wider) at full precision for activations of any dtype.

    Args:
        x_BTD: the activation.
        kernel_DE: the router's kernel.
        bias_E: its trained bias, or None.
        rules: ordered logical axis rules.
    """
    wide = wide_dtype(x_BTD.dtype)
    shape = (*x_BTD.shape[:-1], kernel_DE.shape[-1])
    logits_BTE = jnp.einsum(
        "BTD,DE->BTE",
        x_BTD.astype(wide),
        kernel_DE.astype(wide),
        precision=jax.lax.Precision.HIGHEST,
        out_sharding=out_sharding(ROUTED, shape, rules),
    )
    logits_BTE = constrain(logits_BTE, ROUTED, rules)
    if bias_E is None:
        return logits_BTE
    chex.assert_shape(bias_E, kernel_DE.shape[1:])
    return logits_BTE + bias_E.astype(wide)[None, None]


def route(
    logits_BTE: jax.Array,
    routing_bias_E: jax.Array | None,
    present_BT: jax.Array,
    moe: MoeConfig,
    rules: Rules,
    forced_BTK: jax.Array | None = None,
) -> Routing:
    """Chooses ``top_k`` experts for each token; ties go to the lower index.

    Args:
        logits_BTE: float32 or wider.
        routing_bias_E: added to the scores for the choice only; no gradient flows into it.
        present_BT: bool, False for padding, which takes no expert.
        moe: scoring, weighting, groups, scale.
        rules: ordered logical axis rules.
        forced_BTK: int32 choices to use instead, so that two runs can be compared after a tie.
    """
    chex.assert_shape(present_BT, logits_BTE.shape[:-1])
    experts = logits_BTE.shape[-1]
    scoring = jax.nn.softmax if moe.scoring is Scoring.SOFTMAX else jax.nn.sigmoid
    scores_BTE = scoring(logits_BTE)
    ranked_BTE = scores_BTE if routing_bias_E is None else scores_BTE + routing_bias_E[None, None]
    preferred_BTK, margin_BT = _choose_on_each_device(jax.lax.stop_gradient(ranked_BTE), moe, rules)
    chosen_BTK = preferred_BTK if forced_BTK is None else forced_BTK
    one_hot_BTKE = jax.nn.one_hot(chosen_BTK, experts, dtype=logits_BTE.dtype)
    if moe.scoring is Scoring.SOFTMAX and moe.weighting is Weighting.NORMALISED:
        weights_BTK = jax.nn.softmax(_pick(logits_BTE, one_hot_BTKE), axis=-1)
    else:
        weights_BTK = _pick(scores_BTE, one_hot_BTKE)
        if moe.weighting is Weighting.NORMALISED:
            weights_BTK = weights_BTK / jnp.sum(weights_BTK, axis=-1, keepdims=True)
    return Routing(
        experts_BTK=jnp.where(present_BT[:, :, None], chosen_BTK, experts),
        preferred_BTK=jnp.where(present_BT[:, :, None], preferred_BTK, experts),
        weights_BTK=weights_BTK * moe.scale,
        shares_BTE=scores_BTE / jnp.sum(scores_BTE, axis=-1, keepdims=True),
        margin_BT=margin_BT,
    )


def _pick(values_BTE: jax.Array, one_hot_BTKE: jax.Array) -> jax.Array:
    return jnp.sum(values_BTE[:, :, None] * one_hot_BTKE, axis=-1)


def _choose_on_each_device(
    ranked_BTE: jax.Array, moe: MoeConfig, rules: Rules
) -> tuple[jax.Array, jax.Array]:
    """Chooses on each device for its tokens; without that the compiler gathers all scores for ``top_k``."""
    spec = spec_here(ROUTED, ranked_BTE.shape, rules)
    choose = functools.partial(_choose, moe=moe)
    if spec is None:
        return choose(ranked_BTE)
    out_specs = (spec, jax.sharding.PartitionSpec(*spec[:2]))
    return jax.shard_map(choose, in_specs=spec, out_specs=out_specs)(constrain(ranked_BTE, ROUTED, rules))


def _choose(ranked_BTE: jax.Array, moe: MoeConfig) -> tuple[jax.Array, jax.Array]:
    """Returns the best experts, within the best groups, and the smaller margin of the two choices."""
    if moe.groups == 1:
        return _top(ranked_BTE, moe.top_k)
    B, T, E = ranked_BTE.shape
    ranked_BTGS = ranked_BTE.reshape(B, T, moe.groups, E // moe.groups)
    best_BTG2, _ = jax.lax.top_k(ranked_BTGS, 2)
    groups_BTK, group_margin_BT = _top(jnp.sum(best_BTG2, axis=-1), moe.top_groups)
    open_BTG = jnp.any(jax.nn.one_hot(groups_BTK, moe.groups, dtype=bool), axis=2)
    limited_BTGS = jnp.where(open_BTG[..., None], ranked_BTGS, -jnp.inf)
    chosen_BTK, margin_BT = _top(limited_BTGS.reshape(B, T, E), moe.top_k)
    return chosen_BTK, jnp.minimum(margin_BT, group_margin_BT)


def _top(ranked_BTE: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    if count == ranked_BTE.shape[-1]:
        _, chosen_BTK = jax.lax.top_k(ranked_BTE, count)
        return chosen_BTK, jnp.full_like(ranked_BTE[..., 0], jnp.inf)
    best_BTK, chosen_BTK = jax.lax.top_k(ranked_BTE, count + 1)
    return chosen_BTK[..., :count], best_BTK[..., count - 1] - best_BTK[..., count]


def expert_load(experts_BTK: jax.Array, experts: int) -> jax.Array:
    """Returns int32 ``[E]``: the number of tokens that chose each expert, without padding.

    Args:
        experts_BTK: int32 choices; ``experts`` for padding.
        experts: E.
    """
    return jnp.sum(jax.nn.one_hot(experts_BTK, experts, dtype=jnp.int32), axis=(0, 1, 2))


def load_balance(shares_BTE: jax.Array, load_E: jax.Array, present_BT: jax.Array) -> jax.Array:
    """Returns ``E * sum_e f_e P_e``, which is 1 for an even load; only P has a gradient.

    f is the share of the choices that fell on an expert, P the mean share of its scores, both over the
    tokens that are present.

    Args:
        shares_BTE: as in `Routing`.
        load_E: as from `expert_load`.
        present_BT: bool, False for padding.

    Source: Fedus et al. 2021, "Switch Transformers", for one choice; here f counts all K.
    """
    wide = shares_BTE.dtype
    tokens = jnp.maximum(jnp.sum(present_BT.astype(wide)), 1)
    mean_share_E = jnp.sum(shares_BTE * present_BT.astype(wide)[:, :, None], axis=(0, 1)) / tokens
    load_E = load_E.astype(wide)
    fraction_E = load_E / jnp.maximum(jnp.sum(load_E), 1)
    return load_E.shape[0] * jnp.sum(fraction_E * mean_share_E)


def balance_bias(bias_E: jax.Array, load_E: jax.Array, moe: MoeConfig) -> jax.Array:
    """Returns the routing bias after a step: raised for experts below the mean load, lowered for those above.

    Args:
        bias_E: ``[..., E]``.
        load_E: int32 ``[..., E]``, of the whole step.
        moe: has the rate; without a rate the bias is unchanged.

    Source: Wang et al. 2024, "Auxiliary-loss-free load balancing"; DeepSeek-V3.
    """
    load_E = load_E.astype(bias_E.dtype)
    return bias_E + (moe.bias_rate or 0.0) * jnp.sign(jnp.mean(load_E, axis=-1, keepdims=True) - load_E)
