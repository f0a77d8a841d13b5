"""WeightNorm and SpectralNorm of NNX: a call overwrites the parameter with its normalised value."""

import jax
import jax.numpy as jnp
from flax import linen, nnx

x = jnp.ones((1, 8))


def norm(kernel):
    return float(jnp.linalg.norm(kernel))


for name, wrap in (
    ("WeightNorm", lambda dense: nnx.WeightNorm(dense, rngs=nnx.Rngs(1))),
    ("SpectralNorm", lambda dense: nnx.SpectralNorm(dense, rngs=nnx.Rngs(1))),
):
    dense = nnx.Linear(8, 8, rngs=nnx.Rngs(0))
    layer = wrap(dense)
    before = norm(dense.kernel[...])
    layer(x, update_stats=False) if name == "SpectralNorm" else layer(x)
    print(f"{name} of NNX, norm of the kernel before and after a call:", before, norm(dense.kernel[...]))

weight_norm = nnx.WeightNorm(nnx.Linear(8, 8, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1))
print("WeightNorm of NNX, trained leaves:  ", len(jax.tree.leaves(nnx.state(weight_norm, nnx.Param))))


class Dense(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.WeightNorm(linen.Dense(8))(x)


variables = Dense().init(jax.random.key(0), x)
print("WeightNorm of Linen, trained leaves:", len(jax.tree.leaves(variables["params"])))
_, after = Dense().apply(variables, x, mutable=["params"])
leaves = zip(jax.tree.leaves(variables["params"]), jax.tree.leaves(after["params"]), strict=True)
print("WeightNorm of Linen, a call changes them:", any(bool((a != b).any()) for a, b in leaves))
