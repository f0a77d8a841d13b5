"""Low-rank adapters on frozen weights: all are parameters, and only the adapters are trained."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx
from flax.training.train_state import TrainState

import parity

FROZEN = {"kernel": "frozen", "lora_a": "trained", "lora_b": "trained"}
TRAINED = optax.multi_transform({"trained": optax.adam(1e-2), "frozen": optax.set_to_zero()}, FROZEN)


class LinenLora(linen.Module):
    @linen.compact
    def __call__(self, x):
        shapes = {"kernel": (12, 6), "lora_a": (12, 2), "lora_b": (2, 6)}
        init = linen.initializers.lecun_normal()
        kernel, a, b = (self.param(name, init, shape) for name, shape in shapes.items())
        return x @ a @ b + x @ kernel


class Trained(nnx.Module):
    def __init__(self, key):
        init = nnx.initializers.lecun_normal()
        inits = {"a_initializer": init, "b_initializer": init, "use_bias": False}
        self.model = nnx.LoRALinear(12, 6, lora_rank=2, rngs=nnx.Rngs(key), **inits)
        self.optimizer = nnx.Optimizer(self.model, optax.adam(1e-2), wrt=nnx.LoRAParam)


def linen_create(key):
    params = LinenLora().init(key, jnp.zeros((8, 12)))["params"]
    return TrainState.create(apply_fn=LinenLora().apply, params=params, tx=TRAINED)


def linen_step(state, batch):
    loss = jax.value_and_grad(lambda p: jnp.mean(state.apply_fn({"params": p}, batch["x"]) ** 2))
    value, grads = loss(state.params)
    return state.apply_gradients(grads=grads), value


def nnx_step(state, batch):
    wrt = nnx.DiffState(0, nnx.LoRAParam)
    loss = nnx.value_and_grad(lambda model: jnp.mean(model(batch["x"]) ** 2), argnums=wrt)
    value, grads = loss(state.model)
    state.optimizer.update(state.model, grads)
    return state, value


LINEN = parity.CustomSide(create=linen_create, programs={"step": linen_step}, flavour=parity.Flavour.LINEN)
NNX = parity.CustomSide(create=Trained, programs={"step": nnx_step}, flavour=parity.Flavour.NNX)


def inputs(seed):
    return {"x": np.random.default_rng(seed).normal(size=(8, 12)).astype("float32")}


PAIR = parity.twin_programs("lora", linen=LINEN, nnx=NNX, inputs=inputs, zero_gradients=("params/kernel",))
