"""A `TrainState` against an `nnx.Optimizer`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx
from flax.training.train_state import TrainState

import parity

ADAM = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
MODEL = linen.Sequential([linen.Dense(16), linen.LayerNorm(), jnp.tanh, linen.Dense(3)])


def loss(out, batch):
    return jnp.mean((out - batch["x"][:, :3]) ** 2)


def linen_create(key):
    params = MODEL.init(key, jnp.zeros((8, 12)))["params"]
    return TrainState.create(apply_fn=MODEL.apply, params=params, tx=ADAM)


def linen_step(state, batch):
    value, grads = jax.value_and_grad(lambda p: loss(state.apply_fn({"params": p}, batch["x"]), batch))(
        state.params
    )
    return state.apply_gradients(grads=grads), value


class Trained(nnx.Module):
    def __init__(self, key):
        rngs = nnx.Rngs(key)
        up, down = nnx.Linear(12, 16, rngs=rngs), nnx.Linear(16, 3, rngs=rngs)
        self.model = nnx.Sequential(up, nnx.LayerNorm(16, rngs=rngs), jnp.tanh, down)
        self.optimizer = nnx.Optimizer(self.model, ADAM, wrt=nnx.Param)


def nnx_step(state, batch):
    value, grads = nnx.value_and_grad(lambda model: loss(model(batch["x"]), batch))(state.model)
    state.optimizer.update(state.model, grads)
    return state, value


PAIR = parity.twin_programs(
    "train_state",
    linen=parity.CustomSide(
        create=linen_create, programs={"train_step": linen_step}, flavour=parity.Flavour.LINEN
    ),
    nnx=parity.CustomSide(create=Trained, programs={"train_step": nnx_step}, flavour=parity.Flavour.NNX),
    inputs=lambda seed: {"x": np.random.default_rng(seed).normal(size=(8, 12)).astype("float32")},
)
