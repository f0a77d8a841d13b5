"""Low-rank adapters on frozen weights: all are parameters, and only the adapters are trained."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx
from flax.training.train_state import TrainState

import parity

FROZEN = {"kernel": "frozen", "bias": "frozen", "lora_a": "trained", "lora_b": "trained"}
TRAINED = optax.multi_transform({"trained": optax.adam(1e-2), "frozen": optax.set_to_zero()}, FROZEN)


class LinenLora(linen.Module):
    @linen.compact
    def __call__(self, x):
        kernel = self.param("kernel", linen.initializers.lecun_normal(), (12, 6))
        bias = self.param("bias", linen.initializers.zeros, (6,))
        a = self.param("lora_a", linen.initializers.he_uniform(), (12, 2))
        b = self.param("lora_b", linen.initializers.zeros, (2, 6))
        return x @ a @ b + (x @ kernel + bias[None])


class Trained(nnx.Module):
    def __init__(self, key):
        self.model = nnx.LoRALinear(12, 6, lora_rank=2, rngs=nnx.Rngs(key))
        self.optimizer = nnx.Optimizer(self.model, optax.adam(1e-2), wrt=nnx.LoRAParam)


def linen_create(key):
    params = LinenLora().init(key, jnp.zeros((8, 12)))["params"]
    return TrainState.create(apply_fn=LinenLora().apply, params=params, tx=TRAINED)


def error(out):
    return jnp.mean((out - 1) ** 2)


def linen_step(state, batch):
    value, grads = jax.value_and_grad(lambda p: error(state.apply_fn({"params": p}, batch["x"])))(
        state.params
    )
    return state.apply_gradients(grads=grads), value


def nnx_step(state, batch):
    wrt = nnx.DiffState(0, nnx.LoRAParam)
    value, grads = nnx.value_and_grad(lambda model: error(model(batch["x"])), argnums=wrt)(state.model)
    state.optimizer.update(state.model, grads)
    return state, value


PAIR = parity.twin_programs(
    "lora",
    linen=parity.Own(create=linen_create, programs={"train_step": linen_step}, flavour=parity.Flavour.LINEN),
    nnx=parity.Own(create=Trained, programs={"train_step": nnx_step}, flavour=parity.Flavour.NNX),
    zero_gradients=("params/kernel", "params/bias"),
    inputs=lambda seed: {"x": np.random.default_rng(seed).normal(size=(8, 12)).astype("float32")},
)
