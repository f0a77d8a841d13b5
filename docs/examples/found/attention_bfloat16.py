"""Attention in bfloat16: NNX takes the softmax in float32, Linen in bfloat16."""

import jax
import jax.numpy as jnp
from flax import linen, nnx

query, key, value = jax.random.normal(jax.random.key(0), (3, 1, 256, 2, 16), jnp.bfloat16)


def exponentials(attend):
    """Returns the dtypes of all exponentials in the traced function."""
    text = str(jax.make_jaxpr(attend)(query, key, value))
    return sorted({line.split(":")[1].split("[")[0] for line in text.splitlines() if "= exp " in line})


in_linen = linen.dot_product_attention(query, key, value)
in_nnx = nnx.dot_product_attention(query, key, value)
wide = (one.astype(jnp.float32) for one in (query, key, value))
exact = linen.dot_product_attention(*wide)
print("Linen:", exponentials(linen.dot_product_attention), float(abs(in_linen - exact).max()))
print("NNX:  ", exponentials(nnx.dot_product_attention), float(abs(in_nnx - exact).max()))
