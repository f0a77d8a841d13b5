"""The main stack of layers, run in stages at the same time.

S stage, M microbatch, B rows of the batch or of a microbatch, T position, D embed.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from models_nnx.shared import ops
from models_nnx.shared.config import Loop, ModelConfig

__all__ = ["Pipeline"]

STATE = ("params", "routing_bias")
SOWN = ("sown", "routed")


def in_turn(stages: nn.Module, x_BTD, segments_BT, positions_BT, deterministic: bool):
    """Runs one stage, with the signature of a scan body."""
    return stages(x_BTD, segments_BT, positions_BT, deterministic), None


def stacked(run: Callable, axes: list[tuple[str, int]]) -> Callable:
    """Returns ``run`` over modules whose parameters have the leading ``axes``, each a name and a length."""
    for name, length in reversed(axes):
        run = nn.scan(
            run,
            variable_axes=dict.fromkeys((*STATE, *SOWN), 0),
            split_rngs={"params": True, "dropout": True},
            in_axes=nn.broadcast,
            length=length,
            metadata_params={nn.PARTITION_NAME: name},
            check_constancy_invariants=False,
        )
    return run


class Pipeline(nn.Module):
    """Stages that run at the same time, each on a different microbatch.

    Args:
        config: the model, with a pipeline.
        stage: creates the decoder of ``config.stage`` that a stage runs in one repeat.
    """

    config: ModelConfig
    stage: Callable[..., nn.Module]

    def setup(self):
        self.stages = self.stage(self.config.stage)

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool, caching=None):
        cfg = self.config
        ops.refuse_caching(caching)
        if self.is_initializing():  # stages create their parameters one after the other, without a mesh
            run = stacked(in_turn, cfg.staging.axes)
            return run(self.stages, x_BTD, segments_BT, positions_BT, deterministic)[0]
        state = {name: held["stages"] for name, held in self.variables.items() if name in STATE}
        leaves, tree = jax.tree.flatten(state)
        pipe = ops.Pipe.of(cfg, self._axes(), leaves, x_BTD)
        key = self.make_rng("dropout") if cfg.dropout and not deterministic else None

        def iterate(weights, inputs, x_SBTD, iteration):
            def stage(leaves, x_BTD, segments_BT, positions_BT, number):
                module = self.stage(cfg.stage, parent=None)
                keys = ops.stage_key(inputs.key, iteration, number)
                apply = functools.partial(
                    module.apply, jax.tree.unflatten(tree, leaves), mutable=SOWN, rngs=keys
                )
                return apply(x_BTD, segments_BT, positions_BT, deterministic)

            of_stages = pipe.of_stages(inputs, iteration)
            run = jax.vmap(stage, spmd_axis_name=ops.STAGE)
            return run(pipe.chosen(weights, iteration), x_SBTD, *of_stages)

        looped = cfg.staging.iteration_loop is Loop.SCANNED
        iterate = ops.checkpointed(iterate, cfg.staging.iteration_remat, scanned=looped)
        inputs = pipe.inputs(segments_BT, positions_BT, key)
        out_BTD, sown = pipe.run(iterate, leaves, inputs, x_BTD)
        for name in filter(self.is_mutable_collection, sown):
            self.put_variable(name, "stages", sown[name])
        return out_BTD

    def _axes(self) -> list[tuple[str | None, ...] | None]:
        """Returns the logical axes of each stacked leaf."""
        front = tuple(name for name, _ in self.config.staging.axes)
        return [names and (*front, *names) for names in stage_axes(self.config.stage, self.stage)]


@functools.cache
def stage_axes(config: ModelConfig, stage: Callable[..., nn.Module]) -> list[tuple[str | None, ...] | None]:
    """Returns the logical axes of each leaf of one stage; None for state that has none."""
    x_BTD = jax.ShapeDtypeStruct((1, 1, config.embed), config.compute_dtype)
    ids_BT = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    init = functools.partial(stage(config, parent=None).init, deterministic=True)
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
        variables = jax.eval_shape(init, jax.random.key(0), x_BTD, ids_BT, ids_BT)
    state = {name: held for name, held in variables.items() if name in STATE}
    boxes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, nn.Partitioned))
    return [getattr(box, "names", None) for box in boxes]
