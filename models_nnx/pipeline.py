"""The main stack of layers, run in stages at the same time.

S stage, M microbatch, B rows of the batch or of a microbatch, T position, D embed.
"""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from models_nnx.rngs import PathRngs
from models_nnx.shared import ops
from models_nnx.shared.config import Loop, ModelConfig
from models_nnx.state import Routed, Sown

__all__ = ["Pipeline"]

SOWN = (Sown, Routed)


def stacked(create: Callable[[PathRngs], nnx.Module], axes: list[tuple[str, int]], rngs: PathRngs) -> Any:
    """Returns a module whose parameters have the leading ``axes``, each a name and a length."""
    if not axes:
        return create(rngs)
    (name, length), *rest = axes

    @nnx.scan(in_axes=0, out_axes=0, transform_metadata={nnx.PARTITION_NAME: name})
    def create_all(keys):
        return stacked(create, rest, rngs.using(keys))

    return create_all(rngs.split(length))


class Pipeline(nnx.Module):
    """Stages that run at the same time, each on a different microbatch.

    Args:
        config: the model, with a pipeline.
        stage: creates the decoder of ``config.stage`` that a stage runs in one repeat.
        rngs: keys to initialise from.
    """

    def __init__(self, config: ModelConfig, stage: Callable[..., nnx.Module], *, rngs: PathRngs):
        self.config, self.path = config, rngs.path
        cfg = config
        self.stages = stacked(lambda rngs: stage(cfg.stage, rngs=rngs), cfg.staging.axes, rngs.at("stages"))

    def __call__(
        self, x_BTD, segments_BT, positions_BT, deterministic: bool, rngs: PathRngs | None, caching=None
    ):
        cfg = self.config
        ops.refuse_caching(caching)
        graphdef, state = nnx.split(self.stages)
        leaves, tree = jax.tree.flatten(state)
        pipe = ops.Pipe.of(cfg, self._axes(state), leaves, x_BTD)
        key = self._key(deterministic, rngs)

        def iterate(weights, inputs, x_SBTD, iteration):
            def stage(leaves, x_BTD, segments_BT, positions_BT, number):
                module = nnx.merge(graphdef, jax.tree.unflatten(tree, leaves))
                keys = ops.stage_key(inputs.key, iteration, number)
                alone = PathRngs.alone(keys, (*self.path, "stages")) if keys else None
                out_BTD = module(x_BTD, segments_BT, positions_BT, deterministic, alone)
                return out_BTD, nnx.pop(module, SOWN)

            of_stages = pipe.of_stages(inputs, iteration)
            run = jax.vmap(stage, spmd_axis_name=ops.STAGE)
            return run(pipe.chosen(weights, iteration), x_SBTD, *of_stages)

        looped = cfg.staging.iteration_loop is Loop.SCANNED
        iterate = ops.checkpointed(iterate, cfg.staging.iteration_remat, scanned=looped)
        inputs = pipe.inputs(segments_BT, positions_BT, key)
        out_BTD, sown = pipe.run(iterate, leaves, inputs, x_BTD)
        nnx.update(self.stages, sown)
        return out_BTD

    def _key(self, deterministic: bool, rngs: PathRngs | None):
        """Returns the dropout key of the stages; None without dropout."""
        if deterministic or self.config.dropout == 0:
            return None
        if rngs is None:
            raise ValueError(
                f"Pipeline at {'/'.join(self.path)}: got rngs=None with deterministic=False, expected "
                "PathRngs with a stream 'dropout'; pass rngs to the model's __call__"
            )
        return rngs.draw("dropout", self.path)

    def _axes(self, state) -> list[tuple[str | None, ...] | None]:
        """Returns the logical axes of each stacked leaf."""
        variables = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, nnx.Variable))
        return [variable.get_metadata().get("out_sharding") for variable in variables]
