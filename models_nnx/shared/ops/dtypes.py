"""The precision of numerically sensitive parts."""

import jax.numpy as jnp

__all__ = [
    "wide_dtype",
]


def wide_dtype(dtype: jnp.dtype | str) -> jnp.dtype:
    """Returns the dtype that norms, softmax and losses compute in: float64 for float64, else float32."""
    return jnp.dtype(jnp.float64 if jnp.dtype(dtype) == jnp.float64 else jnp.float32)
