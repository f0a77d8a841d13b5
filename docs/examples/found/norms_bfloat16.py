"""Norms with dtype=bfloat16: NNX rounds the inputs before it subtracts the mean, Linen normalises in float32."""

import jax
import jax.numpy as jnp
from flax import linen, nnx

x = 100 + jax.random.normal(jax.random.key(0), (64, 32))  # float32; bfloat16 has steps of 0.5 at 100


def layer_norm(module):
    return module.init_with_output(jax.random.key(0), x)[0]


exact = layer_norm(linen.LayerNorm())
in_linen = layer_norm(linen.LayerNorm(dtype=jnp.bfloat16))
in_nnx = nnx.LayerNorm(32, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))(x)
print("LayerNorm, largest error of Linen:", float(abs(in_linen - exact).max()))
print("LayerNorm, largest error of NNX:  ", float(abs(in_nnx - exact).max()))

batch = linen.BatchNorm(use_running_average=False, momentum=0.0, dtype=jnp.bfloat16)
_, variables = batch.init_with_output(jax.random.key(0), x)
_, updated = batch.apply(variables, x, mutable=["batch_stats"])
twin = nnx.BatchNorm(32, momentum=0.0, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
twin(x)
print("BatchNorm, running mean of Linen:", float(updated["batch_stats"]["mean"][0]))
print("BatchNorm, running mean of NNX:  ", float(twin.mean[0]))
