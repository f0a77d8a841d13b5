"""Twins whose weight maps are rules with transforms: a scan against a list, fused against split, transposed kernels.

B batch, T position, D in, F width, N heads, H head size, L layers.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx

import parity
from parity.builds.weights.transforms import Permute, Split, Unstack

B, T, D, F, N, H, L = 4, 6, 10, 8, 2, 4, 3
HALF = jnp.bfloat16


def inputs(seed):
    """Returns a batch."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(B, T, size)).astype("float32") for name, size in (("x", D), ("y", 3))}


def loss(out, batch):
    """Returns the mean of squares."""
    return jnp.mean((out.astype("float32") - batch["y"]) ** 2)


def attend(query, key, value):
    """Returns causal attention of heads that are still joined."""
    query, key, value = (each.reshape(B, T, N, H) for each in (query, key, value))
    scores = jnp.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(H)
    scores = jnp.where(np.tril(np.ones((T, T), bool)), scores, -1e9)
    weights = jax.nn.softmax(scores.astype("float32")).astype(value.dtype)
    return jnp.einsum("bnts,bsnh->btnh", weights, value).reshape(B, T, F)


class Layer(linen.Module):
    """A decoder layer with one projection for query, key and value."""

    dtype: type = jnp.float32

    @linen.compact
    def __call__(self, h):
        each = linen.LayerNorm(name="ln_a", dtype=self.dtype)(h)
        query, key, value = jnp.split(linen.Dense(3 * F, name="qkv", dtype=self.dtype)(each), 3, -1)
        h = h + linen.Dense(F, name="proj", dtype=self.dtype)(attend(query, key, value))
        each = linen.LayerNorm(name="ln_b", dtype=self.dtype)(h)
        each = linen.gelu(linen.Dense(2 * F, name="up", dtype=self.dtype)(each))
        return h + linen.Dense(F, name="down", dtype=self.dtype)(each), None


class Stacked(linen.Module):
    """Layers in a scan."""

    dtype: type = jnp.float32

    @linen.compact
    def __call__(self, x):
        h = linen.Dense(F, name="embed", dtype=self.dtype)(x)
        many = linen.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=L)
        h, _ = many(self.dtype, name="stack")(h)
        return linen.Dense(3, name="head", dtype=self.dtype)(
            linen.LayerNorm(name="last", dtype=self.dtype)(h)
        )


class Single(linen.Module):
    """Layers one after the other."""

    dtype: type = jnp.float32

    @linen.compact
    def __call__(self, x):
        h = linen.Dense(F, name="embed", dtype=self.dtype)(x)
        for at in range(L):
            h, _ = Layer(self.dtype, name=f"layer_{at}")(h)
        return linen.Dense(3, name="head", dtype=self.dtype)(
            linen.LayerNorm(name="last", dtype=self.dtype)(h)
        )


class Joined(nnx.Module):
    """The twin of `Layer` under other names."""

    def __init__(self, dtype, rngs):
        self.pre, self.post = (nnx.LayerNorm(F, dtype=dtype, rngs=rngs) for _ in range(2))
        self.wqkv = nnx.Linear(F, 3 * F, dtype=dtype, rngs=rngs)
        self.wo = nnx.Linear(F, F, dtype=dtype, rngs=rngs)
        self.wi = nnx.Linear(F, 2 * F, dtype=dtype, rngs=rngs)
        self.wd = nnx.Linear(2 * F, F, dtype=dtype, rngs=rngs)

    def __call__(self, h):
        h = h + self.mixed(self.pre(h))
        return h + self.fed(self.post(h))

    def mixed(self, h):
        """Returns attention."""
        query, key, value = jnp.split(self.wqkv(h), 3, -1)
        return self.wo(attend(query, key, value))

    def fed(self, h):
        """Returns the MLP."""
        return self.wd(nnx.gelu(self.wi(h)))


class Turned(nnx.Module):
    """A dense layer with its kernel transposed."""

    def __init__(self, size, out, dtype, rngs):
        self.w = nnx.Param(jax.random.normal(rngs.params(), (out, size)))
        self.b, self.dtype = nnx.Param(jnp.zeros(out)), dtype

    def __call__(self, x):
        return jnp.einsum("btd,fd->btf", x.astype(self.dtype), self.w[...].astype(self.dtype)) + self.shift()

    def shift(self):
        """Returns the bias."""
        return self.b[...].astype(self.dtype)[None, None]


class Split3(nnx.Module):
    """The twin of `Layer` with three projections, and transposed kernels in the MLP."""

    def __init__(self, dtype, rngs):
        self.pre, self.post = (nnx.LayerNorm(F, dtype=dtype, rngs=rngs) for _ in range(2))
        self.wq, self.wk, self.wv, self.wo = (nnx.Linear(F, F, dtype=dtype, rngs=rngs) for _ in range(4))
        self.wi, self.wd = Turned(F, 2 * F, dtype, rngs), Turned(2 * F, F, dtype, rngs)

    def __call__(self, h):
        h = h + self.crossed(self.pre(h))
        return h + self.spread(self.post(h))

    def crossed(self, h):
        """Returns attention."""
        return self.wo(attend(self.wq(h), self.wk(h), self.wv(h)))

    def spread(self, h):
        """Returns the MLP."""
        return self.wd(nnx.gelu(self.wi(h)))


class Model(nnx.Module):
    """A list of layers."""

    def __init__(self, kind, dtype, rngs):
        self.first = nnx.Linear(D, F, dtype=dtype, rngs=rngs)
        self.blk = nnx.List([kind(dtype, rngs) for _ in range(L)])
        self.fin = nnx.LayerNorm(F, dtype=dtype, rngs=rngs)
        self.out = nnx.Linear(F, 3, dtype=dtype, rngs=rngs)

    def __call__(self, x):
        return self.ended(self.passed(self.first(x)))

    def passed(self, h):
        """Returns the activations after all layers."""
        for each in self.blk:
            h = each(h)
        return h

    def ended(self, h):
        """Returns the outputs."""
        return self.out(self.fin(h))


ENDS = tuple(
    parity.Rule(reference=(f"{one}/(.*)",), candidate=(rf"{other}/\1",))
    for one, other in (("embed", "first"), ("last", "fin"), ("head", "out"))
)
NAMES = {"ln_a": "pre", "ln_b": "post", "qkv": "wqkv", "proj": "wo", "up": "wi", "down": "wd"}
STACKS = tuple(
    parity.Rule(
        reference=(f"stack/{one}/(.*)",),
        candidate=tuple(rf"blk/{at}/{other}/\1" for at in range(L)),
        transform=Unstack(0, L),
    )
    for one, other in NAMES.items()
)
SPLITS = (
    *(
        parity.Rule(reference=(rf"layer_(\d+)/{one}/(.*)",), candidate=(rf"blk/\1/{NAMES[one]}/\2",))
        for one in ("ln_a", "ln_b", "proj")
    ),
    *(
        parity.Rule(
            reference=(rf"layer_(\d+)/qkv/{leaf}",),
            candidate=tuple(rf"blk/\1/{name}/{leaf}" for name in ("wq", "wk", "wv")),
            transform=Split(axis, (F, F, F)),
        )
        for leaf, axis in (("kernel", 1), ("bias", 0))
    ),
    *(
        parity.Rule(
            reference=(rf"layer_(\d+)/{one}/kernel",),
            candidate=(rf"blk/\1/{NAMES[one]}/w",),
            transform=Permute((1, 0)),
        )
        for one in ("up", "down")
    ),
    parity.Rule(reference=(r"layer_(\d+)/(up)/bias",), candidate=(r"blk/\1/wi/b",)),
    parity.Rule(reference=(r"layer_(\d+)/(down)/bias",), candidate=(r"blk/\1/wd/b",)),
)
OPTIMIZER = optax.adam(1e-2)


def pair(name, reference, layer, rules, dtype):
    """Returns a pair of one layout and dtype."""
    return parity.twins(
        name,
        linen=lambda: reference(dtype),
        nnx=lambda rngs: Model(layer, dtype, rngs),
        inputs=inputs,
        loss=loss,
        optimizer=OPTIMIZER,
        weight_rules=(*ENDS, *rules),
    )


PAIRS = {
    "stack": pair("stack", Stacked, Joined, STACKS, jnp.float32),
    "split": pair("split", Single, Split3, SPLITS, jnp.float32),
    "stack16": pair("stack16", Stacked, Joined, STACKS, HALF),
    "split16": pair("split16", Single, Split3, SPLITS, HALF),
}
