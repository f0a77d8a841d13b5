"""Calls of both flavours of a user's pair: inputs, arguments, options and random streams."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx

__all__ = ["KEY", "SCALE", "CallSpec", "as_jax_holds", "holds_64_bits"]

Inputs = Callable[[int], Mapping[str, np.ndarray]]
Loss = Callable[[Any, Mapping[str, Any]], jax.Array]
SCALE, KEY = "loss_scale", "stream_key"
"""Names of two additional inputs: the loss scale, and a key if the models draw."""


def holds_64_bits() -> bool:
    """True if JAX uses 64-bit numbers."""
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def as_jax_holds(batch: Mapping[str, Any], wide: bool) -> dict[str, np.ndarray]:
    """Returns a batch in JAX's dtypes: 32 bits unless 64 are enabled; without inputs that are None.

    Args:
        batch: arrays, scalars, lists; None for an optional argument.
        wide: True if JAX uses 64-bit numbers.
    """
    arrays = {name: np.asarray(array) for name, array in batch.items() if array is not None}
    for name, array in arrays.items():
        if array.dtype == object:
            raise ValueError(
                f"inputs: {name}: got {type(batch[name]).__name__}, expected an array, a number or None"
            )
    narrow = (
        {}
        if wide
        else {"int64": np.int32, "uint64": np.uint32, "float64": np.float32, "complex128": np.complex64}
    )
    return {name: array.astype(narrow.get(str(array.dtype), array.dtype)) for name, array in arrays.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallSpec:
    """Properties that both flavours of a user's pair share.

    Args:
        inputs: seed -> batch.
        loss: ``(outputs, batch) -> scalar``.
        arguments: names of the inputs that a model takes by position, in order.
        keywords: names of the inputs that it takes by keyword.
        options: further constant keyword arguments of the Linen and of the NNX model.
        method: names of the called methods, Linen's and NNX's.
        streams: names of the random streams that both receive.
        optimizer: for ``train_step``.
        wide: True if JAX uses 64-bit numbers when the pair is registered.
    """

    inputs: Inputs
    loss: Loss
    arguments: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    options: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    method: tuple[str, str] = ("__call__", "__call__")
    streams: tuple[str, ...] = ()
    optimizer: optax.GradientTransformation = dataclasses.field(default_factory=lambda: optax.adam(1e-2))
    wide: bool = dataclasses.field(init=False, default_factory=holds_64_bits)

    def call(self, which: int, model: Callable[..., Any], batch: Mapping[str, Any]) -> Any:
        """Returns a model's outputs for a batch; ``which`` is 0 for Linen and 1 for NNX."""
        batch = self.with_none(batch)
        for name in {*self.arguments, *self.keywords} - batch.keys():
            raise ValueError(
                f"the batch has no {name!r}, only {sorted(batch)}; name the entries in arguments=(...)"
            )
        keywords = {name: batch[name] for name in self.keywords}
        return model(*(batch[name] for name in self.arguments), **keywords, **self.options[which])

    @functools.cached_property
    def _none(self) -> dict[str, None]:
        return {name: None for name, array in self.inputs(0).items() if array is None}

    def with_none(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a batch with the inputs that are None, which are no arguments of a program."""
        return {**self._none, **batch}

    def keys(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a key for each stream, the same for both flavours."""
        if not self.streams:
            return {}
        root = jax.random.wrap_key_data(jnp.asarray(batch[KEY]), impl="threefry2x32")
        return {name: jax.random.fold_in(root, number) for number, name in enumerate(self.streams)}

    def make_nnx(self, make: Callable[..., nnx.Module], key: jax.Array) -> nnx.Module:
        """Returns the NNX model, made with its default stream and the streams that both flavours receive.

        Args:
            make: called with ``rngs=``.
            key: root of all its keys.
        """
        named = {name: jax.random.fold_in(key, 1 + at) for at, name in enumerate(self.streams)}
        return make(rngs=nnx.Rngs({**named, "default": key}))

    def check_streams(self, model: nnx.Module) -> None:
        """Checks that an NNX model draws from the given streams.

        Args:
            model: may be abstract.

        Raises:
            ValueError: it lacks one of them and holds other streams.
        """
        if _takes_rngs(getattr(model, self.method[1])):
            return
        held = {variable.tag for _, variable in nnx.to_flat_state(nnx.state(model, nnx.RngKey))}
        missing = sorted(set(self.streams) - held)
        if missing and (others := sorted(held - set(self.streams))):
            raise ValueError(
                f"rngs: the NNX model holds no stream {', '.join(missing)}, which would set nothing; it holds "
                f"{', '.join(others)}: name those, make its layers with the rngs that they are given, or give "
                f"{self.method[1]} a parameter rngs"
            )

    def batch(self, seed: int) -> dict[str, np.ndarray]:
        """Returns a batch with a loss scale other than one, and a key if streams are given."""
        rng = np.random.default_rng(seed)
        added = {SCALE: np.asarray(rng.uniform(0.5, 8.0), np.float32)}
        if self.streams:
            added[KEY] = rng.integers(1, 2**32 - 1, 2, np.uint32)
        return {**as_jax_holds(self.inputs(seed), self.wide), **added}

    def scaled(self, outputs: Any, batch: Mapping[str, Any]) -> jax.Array:
        """Returns the loss of some outputs times the batch's scale, without auxiliary results."""
        loss = self.loss(outputs, self.with_none(batch))
        loss = loss[0] if isinstance(loss, tuple) else loss
        return loss * batch[SCALE].astype(loss.dtype)

    def linen_method(self, module: linen.Module) -> Callable[..., Any]:
        """Returns the called method, as Linen's ``apply`` takes it."""
        return getattr(type(module), self.method[0])

    def nnx_call(self, model: nnx.Module, batch: Mapping[str, Any]) -> Any:
        """Calls an NNX model with the keys as argument ``rngs``, or with its streams reseeded for the call."""
        method, keys = getattr(model, self.method[1]), self.keys(batch)
        if keys and _takes_rngs(method):
            return self.call(1, lambda *args, **rest: method(*args, rngs=nnx.Rngs(**keys), **rest), batch)
        own = jax.tree.map(lambda array: array, nnx.state(model, nnx.RngState))
        nnx.reseed(model, policy="match_shape", **keys)  # stacked layers split their keys
        outputs = self.call(1, method, batch)
        if keys:
            nnx.update(model, own)
        return outputs


def _takes_rngs(method: Callable[..., Any]) -> bool:
    return "rngs" in inspect.signature(method).parameters
