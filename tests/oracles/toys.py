"""A user's project written by tests: one dense layer with tanh in both flavours, which each test extends."""

__all__ = ["DENSE", "write_project"]

DENSE = """
import os, pathlib, signal, time
import jax, jax.numpy as jnp, numpy as np
from flax import linen, nnx
import parity

class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return jnp.tanh(linen.Dense(5, name="dense")(x))

class Nnx(nnx.Module):
    def __init__(self, rngs, act=jnp.tanh):
        self.dense, self.act = nnx.Linear(6, 5, rngs=rngs), act

    def __call__(self, x):
        return self.act(self.dense(x))

def inputs(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(8, size)).astype("float32") for name, size in (("x", 6), ("y", 5))}

def loss(out, batch):
    return jnp.mean((out - batch["y"]) ** 2)

def pair(name, nnx=Nnx, loss=loss, **options):
    return parity.twins(name, linen=Linen, nnx=nnx, inputs=inputs, loss=loss, **options)
"""
"""The source of the models, their inputs and loss, and ``pair(name, nnx=..., ...)``."""


def write_project(folder, module, more, *pairs):
    """Writes a project: a module of these twins followed by more source, and settings that name its pairs.

    Args:
        folder: the project's root.
        module: name of the module.
        more: source that defines the pairs.
        pairs: their names in the module.
    """
    (folder / f"{module}.py").write_text(DENSE + more)
    named = ", ".join(f'"{module}:{name}"' for name in pairs)
    (folder / "pyproject.toml").write_text(f"[tool.parity]\npairs = [{named}]\n")
    return folder
