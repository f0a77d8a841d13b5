"""The stack of blocks, scanned or unrolled, with rematerialisation inside the scan.

B batch, T position, D embed.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from models_nnx import ops
from models_nnx.blocks import Block
from models_nnx.config import LayerLayout, ModelConfig, RematPolicy
from models_nnx.rngs import PathRngs

__all__ = ["Decoder"]


def remat(apply: Callable[..., jax.Array], config: ModelConfig) -> Callable[..., jax.Array]:
    """Returns the pure ``apply`` behind the remat policy of ``config``."""
    if config.remat.policy is RematPolicy.NONE:
        return apply
    scanned = config.layout is LayerLayout.SCANNED
    return jax.checkpoint(apply, policy=ops.remat_policy(config.remat), prevent_cse=not scanned)


def stack(config: ModelConfig, rngs: PathRngs) -> Block:
    """Returns one block whose parameters hold all layers along ``config.scan_axis``."""

    @nnx.vmap(in_axes=0, out_axes=config.scan_axis, transform_metadata={nnx.PARTITION_NAME: "layers"})
    def create(keys):
        return Block(config, rngs=rngs.using(keys))

    return create(rngs.split(config.layers))


class Decoder(nnx.Module):
    """``config.layers`` blocks, one after the other."""

    def __init__(self, config: ModelConfig, *, rngs: PathRngs):
        self.config = config
        if config.layout is LayerLayout.SCANNED:
            self.layers: Any = stack(config, rngs.at("layers"))
        else:
            # Named as Linen names them: gradients are summed in the order of names, and bits follow the order.
            for name in self._names:
                setattr(self, name, Block(config, rngs=rngs.at(name)))

    @property
    def _names(self) -> list[str]:
        return [f"layers_{layer}" for layer in range(self.config.layers)]

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool, rngs: PathRngs | None):
        if self.config.layout is LayerLayout.SCANNED:
            return self._scan(x_BTD, segments_BT, positions_BT, deterministic, rngs)
        for name in self._names:
            graphdef, params = nnx.split(getattr(self, name))

            def apply(params, x_BTD, graphdef=graphdef):
                block = nnx.merge(graphdef, params)
                return block(x_BTD, segments_BT, positions_BT, deterministic, rngs)

            x_BTD = remat(apply, self.config)(params, x_BTD)
        return x_BTD

    def _scan(self, x_BTD, segments_BT, positions_BT, deterministic, rngs):
        graphdef, params = nnx.split(self.layers)
        to_front = functools.partial(jnp.moveaxis, source=self.config.scan_axis, destination=0)
        keys = rngs.split(self.config.layers) if rngs else None

        def apply(params, keys, x_BTD):
            block = nnx.merge(graphdef, params)
            return block(x_BTD, segments_BT, positions_BT, deterministic, rngs.using(keys) if rngs else None)

        apply = remat(apply, self.config)
        x_BTD, _ = jax.lax.scan(
            lambda x_BTD, layer: (apply(*layer, x_BTD), None), x_BTD, (jax.tree.map(to_front, params), keys)
        )
        return x_BTD
