"""Shared parts of the programs of both flavours: inputs, groups of outputs, and decoding options."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models_nnx.shared.config import DecodeConfig, ModelConfig
from models_nnx.shared.ops import DecodeState, from_layers

PROGRAMS = ("forward", "grad", "train_step")
DECODING = ("prefill", "generate")
"""Not included: ``sample``, which generates at a temperature, and ``trajectory``, many train steps."""
STEPS = 4
TEMPERATURE = 0.7


class Loop(NamedTuple):
    """Training as functions of a tree of arrays.

    Args:
        create: key -> state.
        step: (state, batch) -> state and metrics.
        example: abstract state, with its boxes or in its Variables.
        checkpoint: the flavour's module of that name.
    """

    create: Callable[[jax.Array], Any]
    step: Callable[[Any, Any], tuple[Any, Mapping[str, jax.Array]]]
    example: Any
    checkpoint: ModuleType


def tokens(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the inputs that a training loop would have."""
    return {name: array for name, array in batch.items() if name != "loss_scale"}


def forced(config: ModelConfig, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``{path of the module: choices}`` if the batch forces them; else an empty dict."""
    given = {name.removeprefix("forced/"): x for name, x in batch.items() if name.startswith("forced/")}
    return from_layers(given, config) if given else {}


def routing_group(routing: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the group ``routing``, for models that route."""
    return {"routing": routing} if routing else {}


def decode_config(batch: Mapping[str, Any], temperature: float | None = None) -> DecodeConfig:
    """Returns a config whose caches hold the prompt and the generated tokens."""
    return DecodeConfig(length=batch["tokens"].shape[1] + STEPS, temperature=temperature)


def prompt_lengths(batch: Mapping[str, Any]) -> jax.Array:
    """Returns the lengths of prompts, up to the padding, so that rows differ."""
    return jnp.sum(batch["segments"] != 0, axis=1, dtype=jnp.int32)


def decoded(rows: DecodeState, cache: Any, **values: jax.Array) -> dict[str, Any]:
    """Returns the outputs of a decoding program."""
    return {"values": {"next": rows.tokens_B1, "positions": rows.positions_B1, "cache": cache, **values}}
