"""Builds of the decoder twins: what a config becomes in each flavour."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import models_linen.model
import models_linen.train
import models_nnx.model
import models_nnx.train
from models_nnx.config import AttentionKernel, ModelConfig, TrainConfig
from models_nnx.data import packed_batch
from models_nnx.ops import sown_metrics
from models_nnx.sharding import explain, resolve
from models_nnx.state import Routed, Sown
from parity.build import Build, Flavour, linen_build, nnx_build
from parity.tree import Leaf

__all__ = ["SOURCES", "decoder_build"]

SMALL = (8, 40)
BATCH_AXES = ("activation_batch", "activation_length")

SOURCES = {
    Flavour.LINEN: ("models_linen/",),
    Flavour.NNX: tuple(
        f"models_nnx/{name}.py"
        for name in (
            "attention",
            "blocks",
            "decoder",
            "embeddings",
            "linear",
            "mla",
            "mlp",
            "model",
            "moe",
            "norms",
            "train",
        )
    ),
}


def _batch(shape: tuple[int, int], seed: int) -> dict[str, np.ndarray]:
    """A packed batch, and a loss scale that no loss happens to ignore."""
    scale = np.random.default_rng(seed).uniform(0.5, 8.0)
    return {**packed_batch(*shape, seed), "loss_scale": np.asarray(scale, np.float32)}


def _abstract_batch(shape: tuple[int, int]) -> dict[str, jax.ShapeDtypeStruct]:
    names = ("tokens", "targets", "segments", "positions", "weights")
    batch = {name: jax.ShapeDtypeStruct(shape, jnp.int32) for name in names}
    return {**batch, "loss_scale": jax.ShapeDtypeStruct((), jnp.float32)}


def _tokens(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of the batch that a training loop would have."""
    return {name: array for name, array in batch.items() if name != "loss_scale"}


def _explain(config: ModelConfig, leaf: Leaf, mesh: Any) -> str:
    if leaf.logical_axes is None or mesh is None:
        return ""
    bindings = explain(leaf.logical_axes, leaf.shape, config.rules, mesh)
    return ", ".join(f"{binding.name}: {binding.reason}" for binding in bindings if binding.name)


def _input_specs(config: ModelConfig, batch: Mapping[str, Any], mesh: jax.sharding.Mesh) -> dict[str, Any]:
    return {
        name: resolve(BATCH_AXES, array.shape, config.rules, mesh, name)
        if array.ndim
        else jax.sharding.PartitionSpec()
        for name, array in batch.items()
    }


def _linen_programs(config: ModelConfig, train: TrainConfig) -> dict[str, Any]:
    with_bias = models_linen.train.with_bias

    def forward(state, batch):
        model = models_linen.model.LanguageModel(config)
        inputs = (batch["tokens"], batch["segments"], batch["positions"])
        variables = with_bias(state.params, state.routing_bias)
        logits, sown = model.apply(variables, *inputs, mutable=["sown"])
        return {"values": {"logits": logits, **sown}}

    def grad(state, batch):
        key = state.key if config.dropout else None

        def loss(params):
            variables = with_bias(params, state.routing_bias)
            loss_sum, (weight, sown) = models_linen.train.loss_sums(config, train, variables, batch, key)
            return batch["loss_scale"].astype(loss_sum.dtype) * loss_sum / weight, sown_metrics(sown, weight)

        (value, sown), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return {"values": {"loss": value, **sown}, "gradients": {"params": grads}}

    def train_step(state, batch):
        state, metrics = models_linen.train.train_step(config, train, state, _tokens(batch))
        return {"values": metrics, "state": state}

    return {"forward": forward, "grad": grad, "train_step": train_step}


def _nnx_programs(config: ModelConfig, train: TrainConfig) -> dict[str, Any]:
    def forward(state, batch):
        inputs = (batch["tokens"], batch["segments"], batch["positions"])
        logits = state.model(*inputs)
        sown, _ = nnx.pop(state.model, Sown, Routed)
        return {"values": {"logits": logits, "sown": sown}}

    def grad(state, batch):
        key = state.key[...] if config.dropout else None
        graphdef, params, rest = nnx.split(state.model, nnx.Param, ...)

        def loss(params):
            model = nnx.merge(graphdef, params, rest)
            loss_sum, (weight, sown) = models_nnx.train.loss_sums(model, train, batch, key)
            return batch["loss_scale"].astype(loss_sum.dtype) * loss_sum / weight, sown_metrics(sown, weight)

        (value, sown), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return {"values": {"loss": value, **sown}, "gradients": {"model": grads}}

    def train_step(state, batch):
        metrics = models_nnx.train.train_step(train, state, _tokens(batch))
        return {"values": metrics, "state": state}

    return {"forward": forward, "grad": grad, "train_step": train_step}


OPTIONS = {"forward": {}, "grad": {}, "train_step": {"steps": 3, "donate": True}}


@functools.cache
def decoder_build(
    flavour: Flavour, name: str, config: ModelConfig, train: TrainConfig, shape: tuple[int, int] = SMALL
) -> Build:
    """Returns the build of a decoder, the same one for the same arguments.

    Args:
        flavour: which twin.
        name: the variant, unique to ``(config, train, shape)``.
        config, train: what to build.
        shape: rows and length of a batch.
    """
    batch = _abstract_batch(shape)
    make, programs, create, specs = {
        Flavour.LINEN: (
            linen_build,
            _linen_programs,
            lambda key: models_linen.train.create(config, train, key, batch=batch),
            models_linen.train.state_specs,
        ),
        Flavour.NNX: (
            nnx_build,
            _nnx_programs,
            lambda key: models_nnx.train.create(config, train, key),
            models_nnx.train.state_specs,
        ),
    }[flavour]
    functions = programs(config, train)
    return make(
        f"{flavour} {name}",
        create,
        {program: (functions[program], OPTIONS[program]) for program in functions},
        inputs=functools.cache(functools.partial(_batch, shape)),
        abstract_inputs=batch,
        specs=functools.partial(specs, config, train),
        input_specs=functools.partial(_input_specs, config),
        rules=config.rules,
        explain=functools.partial(_explain, config),
        sources=SOURCES[flavour],
    )


def float64(config: ModelConfig) -> ModelConfig:
    """Returns ``config`` computing in float64, the truth that arbitration asks; the plain kernel is the exact one."""
    attention = dataclasses.replace(config.attention, kernel=AttentionKernel.PLAIN)
    return dataclasses.replace(config, attention=attention, param_dtype="float64", compute_dtype="float64")
