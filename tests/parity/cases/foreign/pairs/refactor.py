"""Two versions of one flavour: before and after a refactor."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import parity


class Before(nnx.Module):
    def __init__(self, key):
        rngs = nnx.Rngs(key)
        self.q, self.k, self.v = (nnx.Linear(12, 8, rngs=rngs) for _ in range(3))

    def __call__(self, x):
        weights = jax.nn.softmax(self.q(x) @ self.k(x).T / 8**0.5)
        return weights @ self.v(x)


def attend(query, key, value):
    scores = query @ key.T
    return jax.nn.softmax(scores / 8**0.5) @ value


class After(nnx.Module):
    def __init__(self, key):
        rngs = nnx.Rngs(key)
        self.query, self.key, self.value = (nnx.Linear(12, 8, rngs=rngs) for _ in range(3))

    def __call__(self, x):
        return attend(self.query(x), self.key(x), self.value(x))


def step(model, batch):
    value, grads = nnx.value_and_grad(lambda model: jnp.mean(model(batch["x"]) ** 2))(model)
    return {"values": {"loss": value}, "gradients": grads}


PAIR = parity.twin_programs(
    "refactor",
    linen=parity.CustomSide(create=Before, programs={"grad": step}, flavour=parity.Flavour.NNX),
    nnx=parity.CustomSide(create=After, programs={"grad": step}, flavour=parity.Flavour.NNX),
    inputs=lambda seed: {"x": np.random.default_rng(seed).normal(size=(9, 12)).astype("float32")},
)
