"""DiLoCo, plain and streaming: replicas that train separately and synchronise periodically.

R replica.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from models_nnx import train as training
from models_nnx.shared import ops
from models_nnx.shared.config import DilocoConfig, ModelConfig, TrainConfig
from models_nnx.shared.sharding import AnyMesh, resolve
from models_nnx.state import OuterMomentum, OuterParam, OuterStep

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

ADDED = {nnx.PARTITION_NAME: ops.REPLICA}


class Outer(nnx.Module):
    """State that all replicas share.

    Args:
        params: initial parameters of a replica; kept in float32 or wider.
    """

    def __init__(self, params: nnx.State):
        wide = jax.tree.map(lambda x: jnp.array(x, ops.outer_dtype(x.dtype)), params)
        self.step = OuterStep(jnp.zeros((), jnp.uint32))
        self.params = nnx.data(typed(wide, OuterParam))
        self.momentum = nnx.data(typed(jax.tree.map(jnp.zeros_like, wide), OuterMomentum))


class DilocoState(nnx.Module):
    """State that a step changes in place.

    Args:
        inner: the train states of all replicas, each leaf ``[R, ...]``.
        outer: their shared state.
    """

    def __init__(self, inner: training.TrainState, outer: Outer):
        self.inner, self.outer = inner, outer


def create(config: ModelConfig, train: TrainConfig, diloco: DilocoConfig, key: jax.Array) -> DilocoState:
    """Returns a fresh state: replicas that differ only in their dropout keys.

    Args:
        config, train, diloco: configuration of the state.
        key: a typed key, split into parameter and dropout streams, the latter by replica.
    """
    one = training.create(config, train, key)
    outer = Outer(nnx.state(one.model, nnx.Param))
    graphdef, leaves = nnx.split(one)
    many = functools.partial(replicated, diloco.replicas)
    inner = nnx.merge(graphdef, jax.tree.map(many, leaves, is_leaf=training.is_variable))
    inner.key[...] = jax.random.split(one.key[...], diloco.replicas)
    return DilocoState(inner, outer)


def inner_step(train: TrainConfig, state: DilocoState, batch):
    """Makes a train step on every replica, each on its own data, without synchronisation.

    Args:
        train: static.
        state: changed in place.
        batch: as `models_nnx.train.train_step` takes it, ``[R, B, T]``.

    Returns:
        Metrics ``[R]``.

    Raises:
        ShardingError: replicas cannot run on the ambient mesh.
    """
    axis = ops.replica_axis(state.inner.model.config)

    @nnx.vmap(in_axes=0, out_axes=0, spmd_axis_name=axis, transform_metadata=ADDED)
    def step(inner, batch):
        return training.train_step(train, inner, batch)

    metrics = step(state.inner, batch)
    state.outer.step[...] += 1
    return metrics


def sync_step(diloco: DilocoConfig, state: DilocoState, fragment: int = 0) -> None:
    """Makes the outer update of a fragment from the mean over replicas; only here do replicas synchronise.

    Args:
        diloco: static.
        state: changed in place.
        fragment: its number, static; plain DiLoCo has only one.
    """
    parts = fragments(diloco, state)[fragment]
    inner, outer, momentum = map(flat, (trained(state), state.outer.params, state.outer.momentum))
    new = ops.update_outer(diloco, parts, values(inner), values(outer), values(momentum))
    for variables, arrays in zip((outer, momentum), new, strict=True):
        assign(variables, arrays)


def apply_step(diloco: DilocoConfig, state: DilocoState, fragment: int = 0) -> None:
    """Applies the outer parameters of a fragment to every replica; its other state is unchanged.

    Args:
        diloco: static.
        state: changed in place.
        fragment: its number, static; plain DiLoCo has only one.
    """
    parts = fragments(diloco, state)[fragment]
    inner, outer = flat(trained(state)), flat(state.outer.params)
    assign(inner, ops.take_outer(diloco, parts, values(inner), values(outer), state.inner.model.config.rules))


def diloco_step(train: TrainConfig, diloco: DilocoConfig, state: DilocoState, batch):
    """Makes an inner step, then the outer update and its application to the replicas, each if it is due.

    Args:
        train, diloco: static.
        state: changed in place.
        batch: as for `inner_step`.

    Returns:
        Metrics ``[R]``.
    """
    metrics = inner_step(train, state, batch)
    for step, delay in ((sync_step, 0), (apply_step, diloco.delay)):
        choices = [functools.partial(step, diloco, fragment=f) for f in range(diloco.fragments)]
        one_of(ops.due(diloco, state.outer.step[...], delay), choices, state)
    return metrics


def one_of(number: jax.Array, choices: Sequence[Callable], state: DilocoState) -> None:
    """Applies choice ``number``, counted from 1, to ``state``; 0 leaves it unchanged."""
    graphdef, leaves = nnx.split(state)

    def chosen(choice: Callable, leaves: nnx.State) -> nnx.State:
        state = nnx.merge(graphdef, leaves)
        choice(state)
        return nnx.state(state)

    branches = [functools.partial(chosen, choice) for choice in choices]
    nnx.update(state, jax.lax.switch(number, [lambda leaves: leaves, *branches], leaves))


def trained(state: DilocoState) -> nnx.State:
    """Returns the state that replicas synchronise: parameters, but no routing biases, counts or keys."""
    return nnx.state(state.inner.model, nnx.Param)


def fragments(diloco: DilocoConfig, state: DilocoState) -> tuple[dict[str, ops.Part], ...]:
    """Returns the parts of the trained parameters in each fragment."""
    outer = flat(state.outer.params)
    leaves = {path: (training.axes_of(variable), variable.shape) for path, variable in outer.items()}
    return ops.fragment_parts(state.inner.model.config, diloco, leaves)


def state_specs(config: ModelConfig, train: TrainConfig, state: nnx.State, mesh: AnyMesh) -> nnx.State:
    """Returns the spec of every leaf: that of a single replica, with replicas over the mesh axis ``replica``.

    Args:
        config, train: rules, and placement of the moments.
        state: ``nnx.state`` of a `DilocoState`, abstract or not.
        mesh: the mesh.

    Raises:
        ShardingError: the rules do not fit a leaf.
    """
    steps: Any = state["inner"]["optimizer"]["step"]
    (front,) = resolve((ops.REPLICA,), steps.shape, config.rules, mesh, "replicas")

    def one(path, variable):
        return alone(variable) if is_inner(path) else variable

    def spread(path, spec):
        return jax.sharding.PartitionSpec(front, *spec) if is_inner(path) else spec

    state = jax.tree_util.tree_map_with_path(one, state, is_leaf=training.is_variable)
    specs = training.state_specs(config, train, state, mesh)
    return jax.tree_util.tree_map_with_path(spread, specs)


def is_inner(path) -> bool:
    """Returns True if a leaf belongs to the replicas' states."""
    return path[0].key == "inner"


def replicated(replicas: int, variable: nnx.Variable) -> nnx.Variable:
    """Returns a Variable that holds a copy for each replica."""
    value, axes = variable.get_value(), training.axes_of(variable)
    return variable.replace(ops.copies(value, replicas), out_sharding=axes and (ops.REPLICA, *axes))


def alone(variable: nnx.Variable) -> nnx.Variable:
    """Returns one replica's part of a Variable, abstract."""
    value = variable.get_value()
    axes = training.axes_of(variable)
    return variable.replace(
        jax.ShapeDtypeStruct(value.shape[1:], value.dtype), out_sharding=axes and axes[1:]
    )


def typed(tree: nnx.State, kind: type[nnx.Variable]) -> nnx.State:
    """Returns Variables of type ``kind`` with the values and logical axes of those in ``tree``."""

    def as_kind(variable: nnx.Variable) -> nnx.Variable:
        return kind(variable.get_value(), out_sharding=training.axes_of(variable), eager_sharding=False)

    return jax.tree.map(as_kind, tree, is_leaf=training.is_variable)


def flat(tree: nnx.State) -> dict[str, nnx.Variable]:
    """Returns ``{path: Variable}``."""
    return {"/".join(map(str, path)): variable for path, variable in nnx.to_flat_state(tree)}


def values(variables: dict[str, nnx.Variable]) -> dict[str, jax.Array]:
    """Returns ``{path: array}``."""
    return {path: variable[...] for path, variable in variables.items()}


def assign(variables: dict[str, nnx.Variable], arrays: dict[str, jax.Array]) -> None:
    """Assigns to Variables the arrays of the same path."""
    for path, variable in variables.items():
        variable[...] = arrays[path]
