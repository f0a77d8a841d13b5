"""Builds of the decoder twins: what a config becomes in each flavour."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import models_linen.evaluate
import models_linen.model
import models_linen.train
import models_nnx.evaluate
import models_nnx.model
import models_nnx.train
from models_nnx.shared.config import ModelConfig, TrainConfig
from models_nnx.shared.data import packed_batch
from models_nnx.shared.ops import by_layer, from_layers, sown_metrics
from models_nnx.shared.sharding import explain, resolve
from models_nnx.state import ForcedExperts, Routed, Sown
from parity.builds.build import Build, Flavour, linen_build, nnx_build
from parity.builds.tree import Leaf
from parity.matrix.decoding import linen_decoding, nnx_decoding

__all__ = ["SMALL", "SOURCES", "decoder_build"]

SMALL = (8, 40)
BATCH_AXES = ("activation_batch", "activation_length")

SOURCES = {
    Flavour.LINEN: ("models_linen/",),
    Flavour.NNX: tuple(
        f"models_nnx/{name}.py"
        for name in (
            "attention",
            "batch_split",
            "blocks",
            "caching",
            "decode",
            "decoder",
            "diloco",
            "embeddings",
            "evaluate",
            "linear",
            "mla",
            "mlp",
            "model",
            "moe",
            "mtp",
            "norms",
            "pipeline",
            "train",
        )
    ),
}


def _batch(shape: tuple[int, int], seed: int) -> dict[str, np.ndarray]:
    """A packed batch, weights that no segment tells, and a loss scale that no loss happens to ignore."""
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.5, 8.0)
    weights = rng.integers(0, 4, shape).astype(np.int32)
    return {**packed_batch(*shape, seed), "weights": weights, "loss_scale": np.asarray(scale, np.float32)}


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
    axes = (*BATCH_AXES, None)  # choices of experts have a third dimension, a scale has none
    return {
        name: resolve(axes[: array.ndim], array.shape, config.rules, mesh, name)
        if array.ndim
        else jax.sharding.PartitionSpec()
        for name, array in batch.items()
    }


def _forced(config: ModelConfig, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``{path of the module: choices}`` of a batch that forces them; empty for one that does not."""
    given = {name.removeprefix("forced/"): x for name, x in batch.items() if name.startswith("forced/")}
    return from_layers(given, config) if given else {}


def _routing(routing: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the group ``routing``, for models that route."""
    return {"routing": routing} if routing else {}


def _linen_programs(config: ModelConfig, train: TrainConfig) -> dict[str, Any]:
    def variables(params, state, batch):
        tree: dict[str, Any] = {}
        for path, choices in _forced(config, batch).items():
            node = functools.reduce(lambda node, name: node.setdefault(name, {}), path.split("/"), tree)
            node["forced"] = choices
        return models_linen.train.with_bias(params, state.routing_bias) | ({"forced": tree} if tree else {})

    def forward(state, batch):
        if config.mtp:  # in an evaluation its predictors speak too
            read = variables(state.params, state, batch)
            logits, metrics, routing = models_linen.evaluate.evaluate(config, train, read, _tokens(batch))
            return {"values": {"logits": logits, **metrics}, **_routing(routing)}
        model = models_linen.model.LanguageModel(config)
        inputs = (batch["tokens"], batch["segments"], batch["positions"])
        read = variables(state.params, state, batch)
        logits, found = model.apply(read, *inputs, mutable=["sown", "routed"])
        sown, routing = (by_layer(found.get(name, {}), config) for name in ("sown", "routed"))
        return {"values": {"logits": logits, "sown": sown}, **_routing(routing)}

    def grad(state, batch):
        key = state.key if config.dropout else None

        def loss(params):
            read = variables(params, state, batch)
            loss_sum, (weight, sown, routing) = models_linen.train.loss_sums(config, train, read, batch, key)
            scaled = batch["loss_scale"].astype(loss_sum.dtype) * loss_sum / weight
            return scaled, (sown_metrics(sown, weight, config), routing)

        (value, (sown, routing)), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return {"values": {"loss": value, **sown}, "gradients": {"params": grads}, **_routing(routing)}

    def train_step(state, batch):
        state, metrics = models_linen.train.train_step(config, train, state, _tokens(batch))
        return {"values": metrics, "state": state}

    return {
        "forward": forward,
        "grad": grad,
        "train_step": train_step,
        "trajectory": train_step,
        **linen_decoding(config),
    }


def _nnx_programs(config: ModelConfig, train: TrainConfig) -> dict[str, Any]:
    def force(model, batch):
        for path, choices in _forced(config, batch).items():
            functools.reduce(getattr, path.split("/"), model).forced = ForcedExperts(choices)

    def forward(state, batch):
        inputs = (batch["tokens"], batch["segments"], batch["positions"])
        force(state.model, batch)
        if config.mtp:  # in an evaluation its predictors speak too
            logits, metrics, routing = models_nnx.evaluate.evaluate(state.model, train, _tokens(batch))
            nnx.pop(state.model, ForcedExperts)
            return {"values": {"logits": logits, **metrics}, **_routing(routing)}
        logits = state.model(*inputs)
        found = nnx.pop(state.model, Sown, Routed, ForcedExperts)
        sown, routing = (by_layer(nnx.to_pure_dict(tree), config) for tree in found[:2])
        return {"values": {"logits": logits, "sown": sown}, **_routing(routing)}

    def grad(state, batch):
        key = state.key[...] if config.dropout else None
        graphdef, params, rest = nnx.split(state.model, nnx.Param, ...)

        def loss(params):
            model = nnx.merge(graphdef, params, rest)
            force(model, batch)
            loss_sum, (weight, sown, routing) = models_nnx.train.loss_sums(model, train, batch, key)
            scaled = batch["loss_scale"].astype(loss_sum.dtype) * loss_sum / weight
            return scaled, (sown_metrics(sown, weight, config), routing)

        (value, (sown, routing)), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return {"values": {"loss": value, **sown}, "gradients": {"model": grads}, **_routing(routing)}

    def train_step(state, batch):
        metrics = models_nnx.train.train_step(train, state, _tokens(batch))
        return {"values": metrics, "state": state}

    return {
        "forward": forward,
        "grad": grad,
        "train_step": train_step,
        "trajectory": train_step,
        **nnx_decoding(),
    }


OPTIONS = {"train_step": {"steps": 3, "donate": True}, "trajectory": {"steps": 20, "donate": True}}


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
        {program: (functions[program], OPTIONS.get(program, {})) for program in functions},
        inputs=functools.cache(functools.partial(_batch, shape)),
        abstract_inputs=batch,
        specs=functools.partial(specs, config, train),
        input_specs=functools.partial(_input_specs, config),
        rules=config.rules,
        explain=functools.partial(_explain, config),
        sources=SOURCES[flavour],
    )
