"""Gradient accumulation."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["accumulate", "split_rows"]


def split_rows(x: jax.Array, microbatches: int) -> jax.Array:
    """Returns the microbatches ``[M, B, ...]`` of ``x [rows, ...]``.

    Microbatch m takes rows m, m + M, m + 2M, ..., so that a sharded batch stays on its devices.
    """
    return jnp.swapaxes(x.reshape(-1, microbatches, *x.shape[1:]), 0, 1)


def accumulate(gradients: Callable[..., Any], batch: Any, microbatches: int, key: jax.Array | None) -> Any:
    """Sums gradients, losses, weights and sown values over microbatches, one after the other.

    Dividing the sums by the summed weight gives the full batch's mean, also if microbatches hold unequal numbers of
    tokens. `split_rows` makes the microbatches.

    Args:
        gradients: ``(batch, key) -> tree of sums``.
        batch: tree of arrays ``[B, ...]``; ``microbatches`` divides B.
        microbatches: number of microbatches; 1 runs without a loop.
        key: dropout key, folded with the microbatch's number; None for none.

    Returns:
        The tree, summed.

    Raises:
        ValueError: ``microbatches`` does not divide the rows.
    """
    rows = {x.shape[0] for x in jax.tree.leaves(batch)}
    if any(number % microbatches for number in rows):
        raise ValueError(
            f"accumulate: got batches of {sorted(rows)} rows for {microbatches} microbatches, expected a multiple; "
            "change the batch or TrainConfig.accumulation"
        )
    if microbatches == 1:
        return gradients(batch, key)

    def body(total, microbatch):
        number, batch = microbatch
        step_key = None if key is None else jax.random.fold_in(key, number)
        return jax.tree.map(jnp.add, total, gradients(batch, step_key)), None

    first = jax.tree.map(lambda x: x[::microbatches], batch)
    batches = jax.tree.map(lambda x: split_rows(x, microbatches), batch)
    zeros = jax.tree.map(_zeros, jax.eval_shape(gradients, first, key))
    total, _ = jax.lax.scan(body, zeros, (jnp.arange(microbatches), batches))
    return total


def _zeros(like: jax.ShapeDtypeStruct) -> jax.Array:
    """Returns zeros that have, on an explicit mesh, the sharding of the arrays added to them."""
    return jnp.zeros(like.shape, like.dtype, out_sharding=like.sharding)
