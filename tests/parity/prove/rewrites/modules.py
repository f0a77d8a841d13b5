"""Flax modules in Linen and in NNX, on the same parameters."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx

__all__ = ["MODULES", "Module"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Module:
    """One module in both frameworks.

    Args:
        name: as text.
        linen: makes the Linen module.
        nnx: makes the NNX module from its random keys.
        inputs: shapes and dtypes of its inputs.
    """

    name: str
    linen: Callable[[], Any]
    nnx: Callable[[nnx.Rngs], Any]
    inputs: tuple[jax.ShapeDtypeStruct, ...] = (jax.ShapeDtypeStruct((2, 6, 8), jnp.float32),)

    def parameters(self) -> Any:
        """Returns the shapes of the parameters."""
        return jax.eval_shape(lambda *x: self.linen().init(jax.random.key(0), *x)["params"], *self.inputs)

    def run_linen(self, p: Any, *x: jax.Array) -> jax.Array:
        """Applies the Linen module."""
        return self.linen().apply({"params": p}, *x)

    def run_nnx(self, p: Any, *x: jax.Array) -> jax.Array:
        """Applies the NNX module."""
        module = nnx.eval_shape(lambda: self.nnx(nnx.Rngs(0)))
        definition, state = nnx.split(module)
        nnx.replace_by_pure_dict(state, p)
        return nnx.merge(definition, state)(*x)


class _LinenBlock(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.LayerNorm(name="norm")(x)
        y = linen.Dense(16, name="up")(y)
        return x + linen.Dense(8, name="down")(linen.gelu(y))


class _NnxBlock(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.norm = nnx.LayerNorm(8, rngs=rngs)
        self.up = nnx.Linear(8, 16, rngs=rngs)
        self.down = nnx.Linear(16, 8, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x + self.down(nnx.gelu(self.up(self.norm(x))))


MODULES = (
    Module(name="LayerNorm", linen=lambda: linen.LayerNorm(), nnx=lambda rngs: nnx.LayerNorm(8, rngs=rngs)),
    Module(
        name="LayerNorm without bias and scale",
        linen=lambda: linen.LayerNorm(use_bias=False, use_scale=True),
        nnx=lambda rngs: nnx.LayerNorm(8, use_bias=False, rngs=rngs),
    ),
    Module(name="RMSNorm", linen=lambda: linen.RMSNorm(), nnx=lambda rngs: nnx.RMSNorm(8, rngs=rngs)),
    Module(
        name="GroupNorm",
        linen=lambda: linen.GroupNorm(num_groups=2),
        nnx=lambda rngs: nnx.GroupNorm(8, num_groups=2, rngs=rngs),
    ),
    Module(name="Dense", linen=lambda: linen.Dense(16), nnx=lambda rngs: nnx.Linear(8, 16, rngs=rngs)),
    Module(
        name="DenseGeneral",
        linen=lambda: linen.DenseGeneral((2, 4)),
        nnx=lambda rngs: nnx.LinearGeneral(8, (2, 4), rngs=rngs),
    ),
    Module(
        name="DenseGeneral over two axes",
        linen=lambda: linen.DenseGeneral(8, axis=(-2, -1)),
        nnx=lambda rngs: nnx.LinearGeneral((6, 8), 8, axis=(-2, -1), rngs=rngs),
    ),
    Module(
        name="Conv",
        linen=lambda: linen.Conv(4, (3,)),
        nnx=lambda rngs: nnx.Conv(8, 4, (3,), rngs=rngs),
    ),
    Module(
        name="Embed",
        linen=lambda: linen.Embed(16, 8),
        nnx=lambda rngs: nnx.Embed(16, 8, rngs=rngs),
        inputs=(jax.ShapeDtypeStruct((2, 6), jnp.int32),),
    ),
    Module(
        name="attention",
        linen=lambda: linen.MultiHeadDotProductAttention(num_heads=2),
        nnx=lambda rngs: nnx.MultiHeadAttention(num_heads=2, in_features=8, decode=False, rngs=rngs),
    ),
    Module(name="block of norm, two layers and gelu", linen=_LinenBlock, nnx=_NnxBlock),
)
