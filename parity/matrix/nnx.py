"""The NNX models as programs of a state and a batch; `linen` mirrors this module line by line."""

import functools
from collections.abc import Callable, Mapping
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
from parity.builds.tree import Codec, flatten
from parity.matrix.decoders import Variant
from parity.matrix.programs import Loop, Program, decoding, forced, gradients, routing_group, tokens

make_build = nnx_build


def models(variant: Variant) -> Any:
    """Returns the module that makes and trains the state of a variant."""
    return models_nnx.diloco if variant.diloco else models_nnx.train


def creates(variant: Variant) -> Callable[[jax.Array], Any]:
    """Returns a function: key -> fresh state."""
    return functools.partial(models(variant).create, *variant.configs)


def programs(variant: Variant) -> dict[str, Program]:
    """Returns the programs of a decoder, or of its replicas, by name."""
    if variant.diloco:
        return _of_replicas(variant)
    return {**_of_decoder(variant), **_decoding()}


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

    def train_step(state, batch):
        metrics = models_nnx.train.train_step(train, state, tokens(batch))
        return {"values": metrics, "state": state}

    return {"forward": forward, "grad": grad, "train_step": train_step, "trajectory": train_step}


def _decoding() -> dict[str, Program]:
    return decoding(
        models_nnx.decode.prefill,
        models_nnx.decode.generate,
        model_of=lambda state: state.model,
        key_of=lambda state: state.key[...],
        cache_of=lambda rows: nnx.to_pure_dict(rows.cache),
    )


def _of_replicas(variant: Variant) -> dict[str, Program]:
    train, diloco, steps = variant.train, variant.replicas, models_nnx.diloco
    last = diloco.fragments - 1

    def sync_step(state, batch):
        steps.sync_step(diloco, state, last)
        return {"state": state}

    def apply_step(state, batch):
        steps.apply_step(diloco, state, last)
        return {"state": state}

    return {
        "inner_step": lambda state, batch: {
            "values": steps.inner_step(train, state, batch),
            "state": state,
        },
        "sync_step": sync_step,
        "apply_step": apply_step,
        "diloco_step": lambda state, batch: {
            "values": steps.diloco_step(train, diloco, state, batch),
            "state": state,
        },
    }


def saving(variant: Variant) -> Saving:
    """Returns the functions that save and load the state; without replicas also the model for serving."""
    checkpoint = models_nnx.checkpoint
    graphdef, example = nnx.split(nnx.eval_shape(lambda: creates(variant)(jax.random.key(0))))
    codec = Codec(example)

    def export(state: Mapping[str, Any], folder: Path) -> None:
        checkpoint.export(folder, nnx.merge(graphdef, codec.restore(state)).model)

    served = {
        "export": export,
        "load_export": lambda folder: flatten(
            {"model": nnx.state(checkpoint.load_params(folder, variant.config))}
        ),
    }
    return Saving(
        save=lambda state, folder: checkpoint.save(folder, nnx.merge(graphdef, codec.restore(state))),
        load=lambda folder, like: flatten(checkpoint.restore(folder, codec.restore(like))),
        **({} if variant.diloco else served),
    )


def loop(variant: Variant, key: jax.Array) -> Loop:
    """Returns training as functions of a tree of arrays."""
    module, create = models(variant), creates(variant)
    advance = module.diloco_step if variant.diloco else module.train_step
    graphdef, example = nnx.split(nnx.eval_shape(lambda: create(key)))

    def step(leaves, batch):
        state = nnx.merge(graphdef, leaves)
        metrics = advance(*variant.configs[1:], state, batch)
        return nnx.state(state), metrics

    return Loop(
        create=lambda key: nnx.state(create(key)),
        step=step,
        example=example,
        checkpoint=models_nnx.checkpoint,
    )
