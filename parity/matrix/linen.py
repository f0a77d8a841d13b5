"""The Linen models as programs of a state and a batch; `nnx` mirrors this module line by line."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

import models_linen.checkpoint
import models_linen.decode
import models_linen.diloco
import models_linen.evaluate
import models_linen.model
import models_linen.train
from models_nnx.shared.ops import by_layer
from parity.builds.build import Saving, linen_build
from parity.matrix.decoders import Variant
from parity.matrix.programs import (
    Program,
    decoding,
    forced,
    gradients,
    routing_group,
    saving_of,
    stepping,
    tokens,
)

make_build = linen_build


def models(variant: Variant) -> Any:
    """Returns the module that makes and trains the state of a variant."""
    return models_linen.diloco if variant.diloco else models_linen.train


def creates(variant: Variant) -> Callable[[jax.Array], Any]:
    """Returns a function: key -> fresh state."""
    shape = jax.ShapeDtypeStruct(variant.shape, "int32")
    batch = dict.fromkeys(("tokens", "segments", "positions"), shape)
    return functools.partial(models(variant).create, *variant.configs, batch=batch)


def programs(variant: Variant) -> dict[str, Program]:
    """Returns the programs of a decoder, or of its replicas, by name."""
    config, train, diloco, steps = variant.config, variant.train, variant.diloco, models(variant)
    if not diloco:
        step = stepping(functools.partial(steps.train_step, config, train))
        return {**_of_decoder(variant), "train_step": step, "trajectory": step, **_decoding(variant)}
    last = diloco.fragments - 1
    return {
        "inner_step": stepping(functools.partial(steps.inner_step, config, train)),
        "sync_step": lambda state, batch: {"state": steps.sync_step(config, diloco, state, last)},
        "apply_step": lambda state, batch: {"state": steps.apply_step(config, diloco, state, last)},
        "diloco_step": stepping(functools.partial(steps.diloco_step, config, train, diloco)),
    }


def _of_decoder(variant: Variant) -> dict[str, Program]:
    config, train = variant.config, variant.train

    def variables(params, state, batch):
        tree: dict[str, Any] = {}
        for path, choices in forced(config, batch).items():
            node = functools.reduce(lambda node, name: node.setdefault(name, {}), path.split("/"), tree)
            node["forced"] = choices
        return models_linen.train.with_bias(params, state.routing_bias) | ({"forced": tree} if tree else {})

    def forward(state, batch):
        read = variables(state.params, state, batch)
        if config.mtp:  # an evaluation also runs the predictors
            logits, metrics, routing = models_linen.evaluate.evaluate(config, train, read, tokens(batch))
            return {"values": {"logits": logits, **metrics}, **routing_group(routing)}
        model = models_linen.model.LanguageModel(config)
        inputs = (batch["tokens"], batch["segments"], batch["positions"])
        logits, found = model.apply(read, *inputs, mutable=["sown", "routed"])
        sown, routing = (by_layer(found.get(name, {}), config) for name in ("sown", "routed"))
        return {"values": {"logits": logits, "sown": sown}, **routing_group(routing)}

    def grad(state, batch):
        key = state.key if config.dropout else None

        def sums(params):
            return models_linen.train.loss_sums(config, train, variables(params, state, batch), batch, key)

        return gradients(config, "params", state.params, sums, batch)

    return {"forward": forward, "grad": grad}


def _decoding(variant: Variant) -> dict[str, Program]:
    return decoding(
        functools.partial(models_linen.decode.prefill, variant.config),
        functools.partial(models_linen.decode.generate, variant.config),
        model_of=lambda state: models_linen.train.with_bias(state.params, state.routing_bias),
        key_of=lambda state: state.key,
        cache_of=lambda rows: rows.cache,
    )


def saving(variant: Variant) -> Saving:
    """Returns the functions that save and load the state; without replicas also the model for serving."""
    example = models(variant).unbox(jax.eval_shape(creates(variant), jax.random.key(0)))

    def serve(folder: Path, tree: Any) -> None:
        variables = models_linen.train.with_bias(tree.params, tree.routing_bias)
        models_linen.checkpoint.export(folder, variant.config, variables)

    return saving_of(variant, models_linen.checkpoint, example, serve, lambda variables: variables)
