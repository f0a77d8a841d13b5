"""The NNX models as programs of a state and a batch; `linen` mirrors this module line by line."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from flax import nnx

import models_nnx.checkpoint
import models_nnx.decode
import models_nnx.diloco
import models_nnx.evaluate
import models_nnx.train
from models_nnx.shared.ops import by_layer
from models_nnx.state import ForcedExperts, Routed, Sown
from parity.builds.build import Saving, nnx_build
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

make_build = nnx_build


def models(variant: Variant) -> Any:
    """Returns the module that makes and trains the state of a variant."""
    return models_nnx.diloco if variant.diloco else models_nnx.train


def creates(variant: Variant) -> Callable[[jax.Array], Any]:
    """Returns a function: key -> fresh state."""
    return functools.partial(models(variant).create, *variant.configs)


def programs(variant: Variant) -> dict[str, Program]:
    """Returns the programs of a decoder, or of its replicas, by name."""
    train, diloco, steps = variant.train, variant.diloco, models(variant)
    if not diloco:
        step = stepping(_in_place(steps.train_step, train))
        return {**_of_decoder(variant), "train_step": step, "trajectory": step, **_decoding()}
    sync_step, apply_step = (_in_place(each, diloco) for each in (steps.sync_step, steps.apply_step))
    last = diloco.fragments - 1
    return {
        "inner_step": stepping(_in_place(steps.inner_step, train)),
        "sync_step": lambda state, batch: {"state": sync_step(state, last)[0]},
        "apply_step": lambda state, batch: {"state": apply_step(state, last)[0]},
        "diloco_step": stepping(_in_place(steps.diloco_step, train, diloco)),
    }


def _in_place(step: Callable[..., Any], *configs: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Returns a step that returns the state, which ``step`` changes in place, with the result of ``step``."""

    def advance(state: Any, batch: Any) -> tuple[Any, Any]:
        found = step(*configs, state, batch)
        return state, found

    return advance


def _of_decoder(variant: Variant) -> dict[str, Program]:
    config, train = variant.config, variant.train

    def force(model, batch):
        for path, choices in forced(config, batch).items():
            functools.reduce(getattr, path.split("/"), model).forced = ForcedExperts(choices)

    def forward(state, batch):
        force(state.model, batch)
        if config.mtp:  # an evaluation also runs the predictors
            logits, metrics, routing = models_nnx.evaluate.evaluate(state.model, train, tokens(batch))
            nnx.pop(state.model, ForcedExperts)
            return {"values": {"logits": logits, **metrics}, **routing_group(routing)}
        inputs = (batch["tokens"], batch["segments"], batch["positions"])
        logits = state.model(*inputs)
        found = nnx.pop(state.model, Sown, Routed, ForcedExperts)
        sown, routing = (by_layer(nnx.to_pure_dict(tree), config) for tree in found[:2])
        return {"values": {"logits": logits, "sown": sown}, **routing_group(routing)}

    def grad(state, batch):
        key = state.key[...] if config.dropout else None
        graphdef, params, rest = nnx.split(state.model, nnx.Param, ...)

        def sums(params):
            model = nnx.merge(graphdef, params, rest)
            force(model, batch)
            return models_nnx.train.loss_sums(model, train, batch, key)

        return gradients(config, "model", params, sums, batch)

    return {"forward": forward, "grad": grad}


def _decoding() -> dict[str, Program]:
    return decoding(
        models_nnx.decode.prefill,
        models_nnx.decode.generate,
        model_of=lambda state: state.model,
        key_of=lambda state: state.key[...],
        cache_of=lambda rows: nnx.to_pure_dict(rows.cache),
    )


def saving(variant: Variant) -> Saving:
    """Returns the functions that save and load the state; without replicas also the model for serving."""
    graphdef, example = nnx.split(nnx.eval_shape(lambda: creates(variant)(jax.random.key(0))))

    def serve(folder: Path, tree: Any) -> None:
        models_nnx.checkpoint.export(folder, nnx.merge(graphdef, tree).model)

    return saving_of(
        variant, models_nnx.checkpoint, example, serve, lambda model: {"model": nnx.state(model)}
    )
