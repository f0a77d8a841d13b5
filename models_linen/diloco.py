"""DiLoCo, plain and streaming: replicas that train separately and synchronise periodically.

R replica.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct, traverse_util

from models_linen import train as training
from models_nnx.shared import ops
from models_nnx.shared.config import DilocoConfig, ModelConfig, TrainConfig
from models_nnx.shared.sharding import AnyMesh, resolve

__all__ = [
    "DilocoState",
    "Outer",
    "apply_step",
    "create",
    "diloco_step",
    "inner_step",
    "state_specs",
    "sync_step",
]

ADDED = {nn.PARTITION_NAME: ops.REPLICA}


class Outer(struct.PyTreeNode):
    """State that all replicas share.

    Args:
        step: uint32 number of steps made.
        params: outer parameters, the collection ``params`` in float32 or wider.
        momentum: momentum of the outer update, like ``params``.
    """

    step: jax.Array
    params: dict
    momentum: dict


class DilocoState(struct.PyTreeNode):
    """State that a step takes and returns.

    Args:
        inner: the train states of all replicas, each leaf ``[R, ...]``.
        outer: their shared state.
    """

    inner: training.TrainState
    outer: Outer


def create(
    config: ModelConfig, train: TrainConfig, diloco: DilocoConfig, key: jax.Array, *, batch: dict
) -> DilocoState:
    """Returns a fresh state: replicas that differ only in their dropout keys.

    Args:
        config, train, diloco: configuration of the state.
        key: a typed key, split into parameter and dropout streams, the latter by replica.
        batch: arrays or abstract arrays of one replica's batch, for shapes.
    """
    one = training.create(config, train, key, batch=batch)
    inner = jax.tree.map(lambda x: ops.copies(x, diloco.replicas), one)
    inner = inner.replace(key=jax.random.split(one.key, diloco.replicas))
    params = jax.tree.map(lambda x: jnp.array(x, ops.outer_dtype(x.dtype)), one.params)
    momentum = jax.tree.map(jnp.zeros_like, params)
    outer = Outer(step=jnp.zeros((), jnp.uint32), params=params, momentum=momentum)
    return DilocoState(inner=nn.meta.add_axis(inner, 0, ADDED), outer=outer)


def inner_step(config: ModelConfig, train: TrainConfig, state: DilocoState, batch):
    """Makes a train step on every replica, each on its own data, without synchronisation.

    Args:
        config, train: static.
        state: unboxed.
        batch: as `models_linen.train.train_step` takes it, ``[R, B, T]``.

    Returns:
        ``(state, metrics)``, metrics ``[R]``.

    Raises:
        ShardingError: replicas cannot run on the ambient mesh.
    """
    step = functools.partial(training.train_step, config, train)
    inner, metrics = jax.vmap(step, spmd_axis_name=ops.replica_axis(config))(state.inner, batch)
    return state.replace(inner=inner, outer=state.outer.replace(step=state.outer.step + 1)), metrics


def sync_step(
    config: ModelConfig, diloco: DilocoConfig, state: DilocoState, fragment: int = 0
) -> DilocoState:
    """Makes the outer update of a fragment from the mean over replicas; only here do replicas synchronise.

    Args:
        config, diloco: static.
        state: unboxed.
        fragment: its number, static; plain DiLoCo has only one.
    """
    parts = fragments(config, diloco, state)[fragment]
    inner, outer, momentum = map(flat, (state.inner.params, state.outer.params, state.outer.momentum))
    outer, momentum = ops.update_outer(diloco, parts, inner, outer, momentum)
    return state.replace(outer=state.outer.replace(params=nested(outer), momentum=nested(momentum)))


def apply_step(
    config: ModelConfig, diloco: DilocoConfig, state: DilocoState, fragment: int = 0
) -> DilocoState:
    """Applies the outer parameters of a fragment to every replica; its other state is unchanged.

    Args:
        config, diloco: static.
        state: unboxed.
        fragment: its number, static; plain DiLoCo has only one.
    """
    parts = fragments(config, diloco, state)[fragment]
    inner, outer = flat(state.inner.params), flat(state.outer.params)
    inner = ops.take_outer(diloco, parts, inner, outer, config.rules)
    return state.replace(inner=state.inner.replace(params=nested(inner)))


def diloco_step(config: ModelConfig, train: TrainConfig, diloco: DilocoConfig, state: DilocoState, batch):
    """Makes an inner step, then the outer update and its application to the replicas, each if it is due.

    Args:
        config, train, diloco: static.
        state: unboxed.
        batch: as for `inner_step`.

    Returns:
        ``(state, metrics)``, metrics ``[R]``.
    """
    state, metrics = inner_step(config, train, state, batch)
    for step, delay in ((sync_step, 0), (apply_step, diloco.delay)):
        choices = [functools.partial(step, config, diloco, fragment=f) for f in range(diloco.fragments)]
        state = one_of(ops.due(diloco, state.outer.step, delay), choices, state)
    return state, metrics


def one_of(number: jax.Array, choices: Sequence[Callable], state: DilocoState) -> DilocoState:
    """Returns ``state`` after choice ``number``, counted from 1; unchanged for 0."""
    return jax.lax.switch(number, [lambda state: state, *choices], state)


def fragments(
    config: ModelConfig, diloco: DilocoConfig, state: DilocoState
) -> tuple[dict[str, ops.Part], ...]:
    """Returns the parts of the trained parameters in each fragment."""
    axes = parameter_axes(config)
    shapes = {path: x.shape for path, x in flat(state.outer.params).items()}
    return ops.fragment_parts(config, diloco, {path: (axes[path], shapes[path]) for path in shapes})


@functools.cache
def parameter_axes(config: ModelConfig) -> dict[str, tuple[str | None, ...]]:
    """Returns the logical axes of every parameter of one replica, by path."""
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
        return flat(training.parameter_axes(config, (1, 1)))


def state_specs(config: ModelConfig, train: TrainConfig, state: DilocoState, mesh: AnyMesh) -> DilocoState:
    """Returns the spec of every leaf: that of a single replica, with replicas over the mesh axis ``replica``.

    Args:
        config, train: rules, and placement of the moments.
        state: abstract or not, still boxed.
        mesh: the mesh.

    Raises:
        ShardingError: the rules do not fit a leaf.
    """
    one = jax.eval_shape(lambda inner: jax.tree.map(lambda x: x[0], inner), state.inner)
    one = nn.meta.remove_axis(one, 0, ADDED)
    inner = training.state_specs(config, train, one, mesh)
    replicas = state.inner.step.shape
    (front,) = resolve((ops.REPLICA,), replicas, config.rules, mesh, "replicas")
    outer = one.replace(step=state.outer.step, params=state.outer.params)
    outer = training.state_specs(config, train, outer, mesh)
    return DilocoState(
        inner=jax.tree.map(lambda spec: jax.sharding.PartitionSpec(front, *spec), inner),
        outer=Outer(step=outer.step, params=outer.params, momentum=outer.params),
    )


def flat(tree: Any) -> dict[str, Any]:
    """Returns ``{path: leaf}`` of nested dicts."""
    return traverse_util.flatten_dict(tree, sep="/")


def nested(leaves: dict[str, Any]) -> dict:
    """Returns the nested dicts of ``{path: leaf}``."""
    return traverse_util.unflatten_dict(leaves, sep="/")


def unbox(state: DilocoState) -> DilocoState:
    """Returns ``state`` without the boxes that carry logical axes."""
    return nn.meta.unbox(state)
