"""Dropout from a given key."""

import jax
import jax.numpy as jnp

__all__ = [
    "dropout",
]


def dropout(x: jax.Array, key: jax.Array, rate: float) -> jax.Array:
    """Zeroes entries with probability ``rate`` and scales the rest by ``1 / (1 - rate)``.

    The mask is drawn in float32 at any precision, so that a float64 run drops the same entries.
    """
    spec = jax.typeof(x).sharding
    keep = jax.random.bernoulli(key, p=jnp.float32(1.0 - rate), shape=x.shape, out_sharding=spec)
    return jax.lax.select(keep, x / (1.0 - rate), jnp.zeros_like(x))
