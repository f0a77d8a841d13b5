"""One local layer of Flax's Gemma example, token by token: it must give what the whole sequence gives.

`python gemma_window.py FLAX/examples/gemma`, with a clone of github.com/google/flax at FLAX and jaxtyping installed.
"""

import sys

import jax
import jax.numpy as jnp
from flax import nnx

sys.path.insert(0, sys.argv[1])
import modules
from transformer_cfg import AttentionType, ShardingConfig

WINDOW, LENGTH, WIDTH = 4, 8, 16
layer = modules.Attention(
    num_heads=2,
    num_kv_heads=2,
    features=WIDTH,
    head_dim=8,
    query_pre_attn_scalar=1.0,
    attn_type=AttentionType.LOCAL_SLIDING,
    sliding_window_size=WINDOW,
    shd_config=ShardingConfig.no_sharding(),
    rngs=nnx.Rngs(0),
)
x = jax.random.normal(jax.random.key(1), (1, LENGTH, WIDTH))
positions = jnp.arange(LENGTH)[None]
_, whole = layer(x, positions, None, jnp.tril(jnp.ones((1, LENGTH, LENGTH), bool)))

cache = layer.init_cache(LENGTH, 1)
for step in range(LENGTH):
    seen = (jnp.arange(LENGTH) <= step)[None, None]  # as in _compute_attention_masks of sampler.py
    cache, one = layer(x[:, step : step + 1], positions[:, step : step + 1], cache, seen)
    print("token", step, "differs by", round(float(abs(one[0, 0] - whole[0, step]).max()), 4))
