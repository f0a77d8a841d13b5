"""Programs of the decoders that decode: a prompt into caches, and tokens out of them."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import models_linen.decode
import models_linen.train
import models_nnx.decode
from models_nnx.shared.config import DecodeConfig, ModelConfig
from models_nnx.shared.ops import DecodeState

__all__ = ["DECODING", "linen_decoding", "nnx_decoding"]

DECODING = ("prefill", "generate")
"""Further there is ``sample``, which generates at a temperature."""
STEPS = 4
TEMPERATURE = 0.7


def _decode(batch: Mapping[str, Any], temperature: float | None = None) -> DecodeConfig:
    """Caches that hold the prompt and what follows."""
    return DecodeConfig(length=batch["tokens"].shape[1] + STEPS, temperature=temperature)


def _lengths(batch: Mapping[str, Any]) -> jax.Array:
    """Prompts end where padding starts, so that rows differ in length."""
    return jnp.sum(batch["segments"] != 0, axis=1, dtype=jnp.int32)


def _found(rows: DecodeState, cache: Any, **values: jax.Array) -> dict[str, Any]:
    return {"values": {"next": rows.tokens_B1, "positions": rows.positions_B1, "cache": cache, **values}}


def linen_decoding(config: ModelConfig) -> dict[str, Callable[..., Any]]:
    """Returns the programs of a Linen decoder."""

    def run(state, batch, temperature=None, key=None):
        decode = _decode(batch, temperature)
        variables = models_linen.train.with_bias(state.params, state.routing_bias)
        prompt = (batch["tokens"], _lengths(batch))
        return variables, models_linen.decode.prefill(config, decode, variables, *prompt, key)

    def prefill(state, batch):
        _, (logits, rows) = run(state, batch)
        return _found(rows, rows.cache, logits=logits)

    def generate(state, batch):
        variables, (_, rows) = run(state, batch)
        tokens, rows = models_linen.decode.generate(config, _decode(batch), variables, rows, STEPS)
        return _found(rows, rows.cache, tokens=tokens)

    def sample(state, batch):
        first, rest = jax.random.split(state.key)
        variables, (_, rows) = run(state, batch, TEMPERATURE, first)
        decode = _decode(batch, TEMPERATURE)
        tokens, rows = models_linen.decode.generate(config, decode, variables, rows, STEPS, rest)
        return _found(rows, rows.cache, tokens=tokens)

    return {"prefill": prefill, "generate": generate, "sample": sample}


def nnx_decoding() -> dict[str, Callable[..., Any]]:
    """Returns the programs of an NNX decoder."""

    def run(state, batch, temperature=None, key=None):
        decode = _decode(batch, temperature)
        prompt = (batch["tokens"], _lengths(batch))
        return models_nnx.decode.prefill(decode, state.model, *prompt, key)

    def prefill(state, batch):
        logits, rows = run(state, batch)
        return _found(rows, nnx.to_pure_dict(rows.cache), logits=logits)

    def generate(state, batch):
        _, rows = run(state, batch)
        tokens, rows = models_nnx.decode.generate(_decode(batch), state.model, rows, STEPS)
        return _found(rows, nnx.to_pure_dict(rows.cache), tokens=tokens)

    def sample(state, batch):
        first, rest = jax.random.split(state.key[...])
        _, rows = run(state, batch, TEMPERATURE, first)
        decode = _decode(batch, TEMPERATURE)
        tokens, rows = models_nnx.decode.generate(decode, state.model, rows, STEPS, rest)
        return _found(rows, nnx.to_pure_dict(rows.cache), tokens=tokens)

    return {"prefill": prefill, "generate": generate, "sample": sample}
