"""Shared parts of the programs of both flavours: inputs, groups of outputs, gradients, and decoding."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from models_nnx.shared.config import DecodeConfig, ModelConfig
from models_nnx.shared.ops import from_layers, sown_metrics
from parity.builds.build import Saving
from parity.builds.tree import Codec, flatten
from parity.matrix.decoders import Variant

PROGRAMS = ("forward", "grad", "train_step")
DECODING = ("prefill", "generate")
"""Not included: ``sample``, which generates at a temperature, and ``trajectory``, many train steps."""
STEPS = 4
TEMPERATURE = 0.7
Program = Callable[[Any, dict[str, Any]], dict[str, Any]]


def tokens(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the inputs that a training loop would have."""
    return {name: array for name, array in batch.items() if name != "loss_scale"}


def stepping(advance: Callable[[Any, Any], tuple[Any, Any]]) -> Program:
    """Returns the program of a step of training: (state, batch) -> state and metrics."""

    def step(state, batch):
        state, metrics = advance(state, tokens(batch))
        return {"values": metrics, "state": state}

    return step


def saving_of(
    variant: Variant,
    checkpoint: ModuleType,
    example: Any,
    serve: Callable[[Path, Any], None],
    served: Callable[[Any], Any],
) -> Saving:
    """Returns the functions that save and load a state; without replicas also the model for serving.

    Args:
        checkpoint: the flavour's module of that name.
        serve: writes the parameters of a state to a folder.
        served: the loaded parameters as a tree with the names of the state.
    """
    codec = Codec(example)
    export = {
        "export": lambda state, folder: serve(folder, codec.restore(state)),
        "load_export": lambda folder: flatten(served(checkpoint.load_params(folder, variant.config))),
    }
    return Saving(
        save=lambda state, folder, about=None: checkpoint.save(folder, codec.restore(state), about),
        load=lambda folder, like: flatten(checkpoint.restore(folder, codec.restore(like))),
        named=lambda state: checkpoint.named(codec.restore(state)),
        **({} if variant.diloco else export),
    )


def forced(config: ModelConfig, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``{path of the module: choices}`` if the batch forces them; else an empty dict."""
    given = {name.removeprefix("forced/"): x for name, x in batch.items() if name.startswith("forced/")}
    return from_layers(given, config) if given else {}


def routing_group(routing: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the group ``routing``, for models that route."""
    return {"routing": routing} if routing else {}


def gradients(
    config: ModelConfig, root: str, params: Any, sums: Callable[[Any], Any], batch: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the scaled loss, sown metrics, gradients and routing.

    Args:
        root: the branch of the state that holds the parameters.
        sums: parameters -> sum of the loss, and its weight, sown values and routing.
    """

    def loss(params):
        loss_sum, (weight, sown, routing) = sums(params)
        scaled = batch["loss_scale"].astype(loss_sum.dtype) * loss_sum / weight
        return scaled, (sown_metrics(sown, weight, config), routing)

    (value, (sown, routing)), grads = jax.value_and_grad(loss, has_aux=True)(params)
    return {"values": {"loss": value, **sown}, "gradients": {root: grads}, **routing_group(routing)}


def decoding(
    prefill: Callable[..., Any],
    generate: Callable[..., Any],
    model_of: Callable[[Any], Any],
    key_of: Callable[[Any], jax.Array],
    cache_of: Callable[[Any], Any],
) -> dict[str, Program]:
    """Returns the programs that decode.

    Args:
        prefill, generate: those of the flavour, called with the config of decoding and the model.
        model_of, key_of: read a state; ``cache_of`` reads rows.
    """

    def start(state, batch, temperature=None, key=None):
        decode = DecodeConfig(length=batch["tokens"].shape[1] + STEPS, temperature=temperature)
        lengths = jnp.sum(batch["segments"] != 0, axis=1, dtype=jnp.int32)  # without the padding: rows differ
        return decode, prefill(decode, model_of(state), batch["tokens"], lengths, key)

    def decoded(rows, **values):
        cache = cache_of(rows)
        return {"values": {"next": rows.tokens_B1, "positions": rows.positions_B1, "cache": cache, **values}}

    def prefilled(state, batch):
        _, (logits, rows) = start(state, batch)
        return decoded(rows, logits=logits)

    def generated(state, batch, temperature=None, first=None, rest=None):
        decode, (_, rows) = start(state, batch, temperature, first)
        new, rows = generate(decode, model_of(state), rows, STEPS, rest)
        return decoded(rows, tokens=new)

    def sampled(state, batch):
        return generated(state, batch, TEMPERATURE, *jax.random.split(key_of(state)))

    return {"prefill": prefilled, "generate": generated, "sample": sampled}
