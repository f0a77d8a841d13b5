"""Twins of stock Flax layers whose programs differ everywhere: different formulas and layouts, a scan against a sum.

B batch, T position, D in, F width, N heads, H head size.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import parity

B, T, D, F, N, H = 4, 6, 10, 8, 2, 4
DECAY = 0.7


def inputs(seed):
    """Returns a batch."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(B, T, size)).astype("float32") for name, size in (("x", D), ("y", 3))}


def loss(out, batch):
    """Returns the mean of squares."""
    return jnp.mean((out - batch["y"]) ** 2)


def held(param):
    """Returns the array of a parameter."""
    return param[...]


class LinenNet(linen.Module):
    """A block of stock layers behind an average that decays."""

    @linen.compact
    def __call__(self, x):
        h = linen.Dense(F, name="up")(x)
        h = h + self.looks_back(linen.LayerNorm(name="norm")(h))
        h = self.remembers(h)
        h = h + linen.Dense(F, name="mixed")(linen.gelu(h))
        return linen.Dense(3, name="down")(h)

    def looks_back(self, h):
        """Applies causal attention."""
        query, key, value = (linen.DenseGeneral((N, H), name=name)(h) for name in ("query", "key", "value"))
        mask = linen.make_causal_mask(jnp.zeros((B, T)))
        out = linen.dot_product_attention(query, key, value, mask=mask)
        return linen.DenseGeneral(F, axis=(-2, -1), name="out")(out)

    def remembers(self, h):
        """Returns at each position a sum over those before it."""
        differing = np.arange(T)[:, None] - np.arange(T)
        weights = np.where(differing >= 0, DECAY ** np.maximum(differing, 0), 0).astype("float32")
        return jnp.einsum("ts,bsf->btf", weights, h)


class Net(nnx.Module):
    """The twin of `LinenNet`, by different formulas."""

    def __init__(self, rngs):
        self.up, self.norm = nnx.Linear(D, F, rngs=rngs), nnx.LayerNorm(F, rngs=rngs)
        self.query, self.key, self.value = (nnx.LinearGeneral(F, (N, H), rngs=rngs) for _ in range(3))
        self.out = nnx.LinearGeneral((N, H), F, axis=(-2, -1), rngs=rngs)
        self.mixed, self.down = nnx.Linear(F, F, rngs=rngs), nnx.Linear(F, 3, rngs=rngs)

    def __call__(self, x):
        h = self.raised(x)
        h = h + self.attended(self.normed(h))
        h = self.averaged(h)
        return self.down(self.residual(h))

    def raised(self, x):
        """Returns a product with the transposed kernel."""
        return jnp.einsum("fd,btd->btf", self.up.kernel[...].T, x) + held(self.up.bias)

    def normed(self, h):
        """Returns a layer norm with the variance of the centred input."""
        centred = h - jnp.mean(h, -1, keepdims=True)
        spread = jnp.mean(centred * centred, -1, keepdims=True)
        return centred / jnp.sqrt(spread + 1e-6) * held(self.norm.scale) + held(self.norm.bias)

    def attended(self, h):
        """Returns attention with a softmax written out."""
        query = self.query(h) / jnp.sqrt(H)
        scores = jnp.einsum("btnh,bsnh->bnts", query, self.key(h))
        seen = jnp.tril(jnp.ones((T, T), bool))
        weights = jnp.where(seen, jnp.exp(scores), 0)
        weights = weights / jnp.sum(weights, -1, keepdims=True)
        return self.out(jnp.einsum("bnts,bsnh->btnh", weights, self.value(h)))

    def averaged(self, h):
        """Returns the sum by a loop."""

        def body(state, each):
            state = DECAY * state + each
            return state, state

        _, states = jax.lax.scan(body, jnp.zeros((B, F)), jnp.swapaxes(h, 0, 1))
        return jnp.swapaxes(states, 0, 1)

    def residual(self, h):
        """Returns the input plus the MLP of it."""
        return h + self.mixed(nnx.gelu(h))


PAIR = parity.twins("stock", linen=LinenNet, nnx=Net, inputs=inputs, loss=loss)
