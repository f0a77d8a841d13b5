"""Conditional computations with a separate predicate for each replica."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType

__all__ = ["apply_if_finite", "choose"]


def choose(predicate: jax.Array, take: Callable[[], Any], skip: Callable[[], Any]) -> Any:
    """Returns ``take()`` if a predicate holds, else ``skip()``; only one of them runs.

    On an explicit mesh with replicas both run, because each replica has a separate predicate. JAX's ``cond`` selects
    there too, but gives the predicate no sharding and refuses it together with arrays that have one.

    Args:
        predicate: bool ``[]``.
        take, skip: make trees of the same shapes and dtypes.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if "replica" not in mesh.shape or AxisType.Explicit not in mesh.axis_types:
        return jax.lax.cond(predicate, take, skip)

    def select(new: jax.Array, old: jax.Array) -> jax.Array:
        spread = jnp.broadcast_to(predicate, new.shape, out_sharding=jax.typeof(new).sharding)
        return jax.lax.select_n(spread, old, new)

    return jax.tree.map(select, take(), skip())


def apply_if_finite(
    chain: optax.GradientTransformation, max_bad_steps: int
) -> optax.GradientTransformationExtraArgs:
    """Returns an optimizer that skips non-finite gradients: ``optax.apply_if_finite``, but with `choose`.

    Args:
        chain: the optimizer.
        max_bad_steps: number of consecutive ones that are skipped before one is applied.
    """
    chain = optax.with_extra_args_support(chain)
    like = optax.apply_if_finite(chain, max_bad_steps)

    def update(updates, state, params=None, **extra):
        finite = jnp.stack([jnp.isfinite(grad).all() for grad in jax.tree.leaves(updates)]).all()
        bad = jnp.where(finite, 0, optax.safe_increment(state.notfinite_count))
        total = jnp.where(finite, state.total_notfinite, optax.safe_increment(state.total_notfinite))
        chosen, inner = choose(
            finite | (bad > max_bad_steps),
            lambda: chain.update(updates, state.inner_state, params, **extra),
            lambda: (optax.tree.zeros_like(updates), state.inner_state),
        )
        state = state._replace(
            notfinite_count=bad, last_finite=finite, total_notfinite=total, inner_state=inner
        )
        return chosen, state

    return optax.GradientTransformationExtraArgs(like.init, update)
