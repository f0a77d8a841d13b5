"""Dropout: the same seed gives other masks, because Linen folds the module's path and NNX counts calls."""

import jax
import jax.numpy as jnp
from flax import linen, nnx

x = jnp.ones((1, 16))
in_linen = linen.Dropout(0.5, deterministic=False).apply({}, x, rngs={"dropout": jax.random.key(0)})
in_nnx = nnx.Dropout(0.5, deterministic=False, rngs=nnx.Rngs(dropout=jax.random.key(0)))(x)
print("Linen:", "".join(str(int(kept > 0)) for kept in in_linen[0]))
print("NNX:  ", "".join(str(int(kept > 0)) for kept in in_nnx[0]))
