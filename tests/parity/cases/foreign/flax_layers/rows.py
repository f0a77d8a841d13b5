"""A row of the sweep: a layer of both flavours, its inputs, and its expected differences."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import parity
from flax_layers.differences import Difference
from parity.cases.case import Pair

__all__ = ["BFLOAT16", "PROGRAMS", "B", "D", "H", "Row", "T", "normal", "of", "variants"]

B, T, D, H = 2, 5, 12, 6
PROGRAMS = ("forward", "grad", "train_step")
BFLOAT16 = {
    "": {},
    "bfloat16": {"dtype": jnp.bfloat16},
    "all bfloat16": dict.fromkeys(("dtype", "param_dtype"), jnp.bfloat16),
}


def of(layer: Callable[..., Any], *arguments: Any, **keywords: Any) -> Callable[..., Any]:
    """Returns a constructor of a layer that lacks only the arguments that `parity.twins` passes."""
    return functools.partial(layer, *arguments, **keywords)


def normal(*shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    """Returns a function that draws an input."""
    return lambda rng: rng.normal(size=shape).astype("float32")


def _loss(outputs: Any, batch: Mapping[str, Any]) -> jax.Array:
    def one(out: Any) -> jax.Array:
        weights = 1 + jnp.arange(out.size, dtype=out.dtype).reshape(out.shape) / out.size
        return jnp.mean((out * weights) ** 2)

    return sum(one(out) for out in jax.tree.leaves(outputs) if jnp.issubdtype(out.dtype, jnp.floating))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A layer in both flavours.

    Args:
        linen: a module, or a function that makes it.
        nnx: function that makes the module; called with ``rngs=``.
        inputs: name -> function that draws it; the layer is called with them in this order.
        options: of `parity.twins`.
        programs: the compared programs.
        differs: a real difference; None if both are the same.
    """

    linen: Any
    nnx: Callable[..., Any]
    inputs: Mapping[str, Callable[[np.random.Generator], np.ndarray]] = dataclasses.field(
        default_factory=lambda: {"x": normal(B, T, D)}
    )
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    programs: Sequence[str] = PROGRAMS
    differs: Difference | None = None

    def pair(self, name: str) -> Pair:
        """Returns the row as a user would register it."""
        given = {"arguments": tuple(self.inputs), "loss": _loss, "programs": self.programs, **self.options}
        return parity.twins(name, linen=self.linen, nnx=self.nnx, inputs=self._batch, **given)

    def _batch(self, seed: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        return {name: draw(rng) for name, draw in self.inputs.items()}


def variants(
    name: str,
    layers: tuple[Any, Any],
    options: Mapping[str, Mapping[str, Any]],
    differs: Mapping[str, Difference] | None = None,
    **row: Any,
) -> dict[str, Row]:
    """Returns a row for each of some options that both flavours take.

    Args:
        name: the first word of each row: ``NAME`` and ``NAME: OPTION``.
        layers: those of Linen and NNX.
        options: name of an option, empty for none -> keyword arguments.
        differs: the options that make a real difference.
        **row: fields of all rows.
    """
    linen, nnx = layers
    return {
        f"{name}: {option}" if option else name: Row(
            linen=of(linen, **keywords), nnx=of(nnx, **keywords), differs=(differs or {}).get(option), **row
        )
        for option, keywords in options.items()
    }
