"""The stacks of blocks, scanned or unrolled, with rematerialisation inside the scan.

B batch, T position, D embed.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from models_nnx import ops
from models_nnx.blocks import Block, Cycle
from models_nnx.config import Caching, LayerLayout, ModelConfig, PipelinedStack, Stack
from models_nnx.pipeline import Pipeline
from models_nnx.rngs import PathRngs
from models_nnx.state import Routed, Sown

__all__ = ["Decoder"]

LEFT = (Sown, Routed, nnx.Cache)
"""What a block leaves behind beside its output."""


class Inputs(NamedTuple):
    """What every block gets beside its activation, in the order of its arguments."""

    segments_BT: jax.Array
    positions_BT: jax.Array
    deterministic: bool
    rngs: PathRngs | None
    caching: Caching | None


def scanned(config: ModelConfig, stack: Stack, *, rngs: PathRngs) -> nnx.Module:
    """Returns one block, or one cycle of them, whose parameters hold all repeats along ``config.scan_axis``."""
    single = len(stack.cycle) == 1
    axes = nnx.StateAxes({nnx.Param: config.scan_axis, ...: 0})

    @nnx.vmap(in_axes=0, out_axes=axes, transform_metadata={nnx.PARTITION_NAME: stack.axis})
    def create(keys):
        if single:
            return Block(config, stack.cycle[0], rngs=rngs.using(keys))
        return Cycle(config, stack.cycle, rngs=rngs.using(keys))

    return create(rngs.split(stack.repeats))


class Decoder(nnx.Module):
    """The stacks of ``config``, one after the other."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        cfg = config
        for stack in cfg.stacks:
            if isinstance(stack, PipelinedStack):
                setattr(self, stack.name, Pipeline(cfg, Decoder, rngs=rngs.at(stack.name)))
                continue
            if stack.layout is LayerLayout.SCANNED:
                setattr(self, stack.name, scanned(cfg, stack, rngs=rngs.at(stack.name)))
                continue
            # Named as Linen names them: gradients are summed in the order of names, and bits follow the order.
            for name, layer in stack.layers.items():
                setattr(self, name, Block(cfg, layer, rngs=rngs.at(name)))

    def __call__(
        self, x_BTD, segments_BT, positions_BT, deterministic: bool, rngs: PathRngs | None, caching=None
    ):
        inputs = Inputs(segments_BT, positions_BT, deterministic, rngs, caching)
        for stack in self.config.stacks:
            if isinstance(stack, PipelinedStack):
                x_BTD = getattr(self, stack.name)(x_BTD, *inputs)
                continue
            if stack.layout is LayerLayout.SCANNED:
                x_BTD = self._scan(stack, x_BTD, inputs)
                continue
            for name in stack.layers:
                x_BTD = self._apply(name, x_BTD, inputs)
        return x_BTD

    def _apply(self, name: str, x_BTD, inputs: Inputs):
        graphdef, state = nnx.split(getattr(self, name))

        def apply(state, x_BTD):
            block = nnx.merge(graphdef, state)
            x_BTD = block(x_BTD, *inputs)
            return x_BTD, nnx.pop(block, LEFT)

        apply = ops.checkpointed(apply, self.config.remat, scanned=False)
        x_BTD, left = apply(state, x_BTD)
        nnx.update(getattr(self, name), left)
        return x_BTD

    def _scan(self, stack: Stack, x_BTD, inputs: Inputs):
        graphdef, params, beside = nnx.split(getattr(self, stack.name), nnx.Param, ...)
        to_front = functools.partial(jnp.moveaxis, source=self.config.scan_axis, destination=0)
        rngs = inputs.rngs
        keys = rngs.split(stack.repeats) if rngs else None

        def apply(params, beside, keys, x_BTD):
            block = nnx.merge(graphdef, params, beside)
            layer_rngs = rngs.using(keys) if rngs else None
            x_BTD = block(x_BTD, *inputs._replace(rngs=layer_rngs))
            return x_BTD, nnx.pop(block, LEFT)

        apply = ops.checkpointed(apply, self.config.remat, scanned=True)
        layers = (jax.tree.map(to_front, params), beside, keys)
        x_BTD, left = jax.lax.scan(lambda x_BTD, layer: apply(*layer, x_BTD), x_BTD, layers)
        nnx.update(getattr(self, stack.name), left)
        return x_BTD
