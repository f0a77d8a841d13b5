"""Training of a variant in either flavour, as functions of a tree of arrays."""

import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import jax
from flax import nnx

from parity.builds.build import Flavour
from parity.matrix.decoders import Variant, builder


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


def loop(flavour: Flavour, variant: Variant, key: jax.Array) -> Loop:
    """Returns the training of a variant."""
    return LOOPS[flavour](variant, key)


def _linen(variant: Variant, key: jax.Array) -> Loop:
    from models_linen import checkpoint

    side = builder(Flavour.LINEN)
    module, create = side.models(variant), side.creates(variant)
    step = module.diloco_step if variant.diloco else module.train_step
    return Loop(
        create=lambda key: module.unbox(create(key)),
        step=functools.partial(step, *variant.configs),
        example=jax.eval_shape(create, key),
        checkpoint=checkpoint,
    )


def _nnx(variant: Variant, key: jax.Array) -> Loop:
    from models_nnx import checkpoint

    side = builder(Flavour.NNX)
    module, create = side.models(variant), side.creates(variant)
    advance = module.diloco_step if variant.diloco else module.train_step
    graphdef, example = nnx.split(nnx.eval_shape(lambda: create(key)))

    def step(leaves, batch):
        state = nnx.merge(graphdef, leaves)
        metrics = advance(*variant.configs[1:], state, batch)
        return nnx.state(state), metrics

    return Loop(create=lambda key: nnx.state(create(key)), step=step, example=example, checkpoint=checkpoint)


LOOPS = {Flavour.LINEN: _linen, Flavour.NNX: _nnx}
