"""An average of the weights, kept next to them, in a jitted step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx
from flax.training.train_state import TrainState

from parity import CustomSide, Flavour, twin_programs

LINEN, SGD = linen.Dense(3), optax.sgd(1e-2, momentum=0.9)


class Averaged(TrainState):
    ema: dict


def loss(out, batch):
    return jnp.mean((out - batch["x"][:, :3]) ** 2)


def linen_create(key):
    params = LINEN.init(key, jnp.zeros((8, 12)))["params"]
    return Averaged.create(apply_fn=LINEN.apply, params=params, tx=SGD, ema=params)


def linen_step(state, batch):
    value, grads = jax.value_and_grad(lambda p: loss(LINEN.apply({"params": p}, batch["x"]), batch))(
        state.params
    )
    state = state.apply_gradients(grads=grads)
    ema = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state.ema, state.params)
    return state.replace(ema=ema), value


class Trained(nnx.Module):
    def __init__(self, key):
        self.model = nnx.Linear(12, 3, rngs=nnx.Rngs(key))
        self.optimizer = nnx.Optimizer(self.model, SGD, wrt=nnx.Param)
        self.ema = nnx.EMA(self.model, decay=0.9)


@nnx.jit
def nnx_step(state, batch):
    value, grads = nnx.value_and_grad(lambda model: loss(model(batch["x"]), batch))(state.model)
    state.optimizer.update(state.model, grads)
    state.ema.update(state.model)
    return state, value


PAIR = twin_programs(
    "ema",
    linen=CustomSide(create=linen_create, programs={"train_step": linen_step}, flavour=Flavour.LINEN),
    nnx=CustomSide(create=Trained, programs={"train_step": nnx_step}, flavour=Flavour.NNX),
    inputs=lambda seed: {"x": np.random.default_rng(seed).normal(size=(8, 12)).astype("float32")},
)
