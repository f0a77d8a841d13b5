"""The stacks of blocks, scanned or unrolled, with rematerialisation inside the scan.

B batch, T position, D embed.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from models_nnx.batch_split import SplitBlock, SplitCycle
from models_nnx.blocks import Block, Cycle
from models_nnx.pipeline import Pipeline
from models_nnx.rngs import PathRngs
from models_nnx.shared import ops
from models_nnx.shared.config import Caching, LayerLayout, ModelConfig, PipelinedStack, RematConfig, Stack
from models_nnx.shared.sharding import constrain
from models_nnx.state import Routed, Sown

__all__ = ["Decoder", "Inputs", "apply_block"]

EMBEDDED = ("activation_batch", "activation_length", "activation_embed")
LEFT = (Sown, Routed, nnx.Cache)
"""Types of the Variables that a block writes in addition to its output."""


class Inputs(NamedTuple):
    """Arguments of every block after its activation, in order; tuples if the activation is in parts."""

    segments_BT: Any
    positions_BT: Any
    deterministic: bool
    rngs: PathRngs | None
    caching: Caching | None


def scanned(config: ModelConfig, stack: Stack, *, rngs: PathRngs) -> nnx.Module:
    """Returns one block, or one cycle of them, whose parameters hold all repeats along ``config.scan_axis``."""
    single, split = len(stack.cycle) == 1, config.is_split(stack)
    block, cycle = (SplitBlock, SplitCycle) if split else (Block, Cycle)
    axes = nnx.StateAxes({nnx.Param: config.scan_axis, ...: 0})

    @nnx.scan(in_axes=0, out_axes=axes, transform_metadata={nnx.PARTITION_NAME: stack.axis})
    def create(keys):
        if single:
            return block(config, stack.cycle[0], rngs=rngs.using(keys))
        return cycle(config, stack.cycle, rngs=rngs.using(keys))

    return create(rngs.split(stack.repeats))


def apply_block(block: nnx.Module, remat: RematConfig, x: Any, inputs: Inputs) -> Any:
    """Returns one block's output for ``x`` under its remat policy; the block keeps Variables of the types `LEFT`."""
    graphdef, state = nnx.split(block)

    def apply(state, x):
        block = nnx.merge(graphdef, state)
        x = block(x, *inputs)
        return x, nnx.pop(block, LEFT)

    x, left = ops.checkpointed(apply, remat, scanned=False)(state, x)
    nnx.update(block, left)
    return x


class Decoder(nnx.Module):
    """The stacks of ``config``, one after the other."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        cfg = config
        for stack in cfg.stacks:
            if isinstance(stack, PipelinedStack):
                setattr(self, stack.name, Pipeline(cfg, Decoder, rngs=rngs.at(stack.name)))
                continue
            inner, block = (cfg.halved, SplitBlock) if cfg.is_split(stack) else (cfg, Block)
            if stack.layout is LayerLayout.SCANNED:
                setattr(self, stack.name, scanned(inner, stack, rngs=rngs.at(stack.name)))
                continue
            # Named as in Linen: gradients are summed in the order of names, and the order determines the bits.
            for name, layer in stack.layers.items():
                setattr(self, name, block(inner, layer, rngs=rngs.at(name)))

    def __call__(
        self, x_BTD, segments_BT, positions_BT, deterministic: bool, rngs: PathRngs | None, caching=None
    ):
        inputs = Inputs(segments_BT, positions_BT, deterministic, rngs, caching)
        for stack in self.config.stacks:
            run = self._halves if self.config.is_split(stack) else self._run
            x_BTD = run(stack, x_BTD, inputs)
        return x_BTD

    def _run(self, stack: Stack, x, inputs: Inputs):
        if isinstance(stack, PipelinedStack):
            return getattr(self, stack.name)(x, *inputs)
        if stack.layout is LayerLayout.SCANNED:
            return self._scan(stack, x, inputs)
        for name in stack.layers:
            x = apply_block(getattr(self, name), self.config.remat, x, inputs)
        return x

    def _halves(self, stack: Stack, x_BTD, inputs: Inputs):
        """Runs a stack on halves of the batch, and places the joined result like ``x_BTD``."""
        segments_BT, positions_BT, _, _, caching = inputs
        arrays, parts = (x_BTD, segments_BT, positions_BT), ops.HALVES if caching is None else 1
        x, segments, positions = (ops.in_halves(x, parts, self.config.halved.rules) for x in arrays)
        x = self._run(stack, x, inputs._replace(segments_BT=segments, positions_BT=positions))
        return constrain(ops.join_halves(x), EMBEDDED, self.config.rules)

    def _scan(self, stack: Stack, x, inputs: Inputs):
        graphdef, params, rest = nnx.split(getattr(self, stack.name), nnx.Param, ...)
        to_front = functools.partial(jnp.moveaxis, source=self.config.scan_axis, destination=0)
        rngs = inputs.rngs
        keys = rngs.split(stack.repeats) if rngs else None

        def apply(params, rest, keys, x):
            block = nnx.merge(graphdef, params, rest)
            layer_rngs = rngs.using(keys) if rngs else None
            x = block(x, *inputs._replace(rngs=layer_rngs))
            return x, nnx.pop(block, LEFT)

        apply = ops.checkpointed(apply, self.config.remat, scanned=True)
        layers = (jax.tree.map(to_front, params), rest, keys)
        x, left = jax.lax.scan(lambda x, layer: apply(*layer, x), x, layers)
        nnx.update(getattr(self, stack.name), left)
        return x
