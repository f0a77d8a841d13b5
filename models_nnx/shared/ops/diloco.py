"""The arithmetic of DiLoCo on ``{path: array}``: times of synchronisation, fragments of layers, both updates.

Framework-free. R replica; ``outer`` and ``momentum`` have a parameter's shape, ``inner`` has a leading R.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from models_nnx.shared.config import (
    ConfigError,
    DilocoConfig,
    Dispatch,
    LayerLayout,
    ModelConfig,
    PipelinedStack,
    Stack,
)
from models_nnx.shared.sharding import ShardingError, constrain

__all__ = [
    "REPLICA",
    "Part",
    "copies",
    "due",
    "fragment_parts",
    "outer_dtype",
    "replica_axis",
    "take_outer",
    "update_outer",
]

REPLICA = "replica"
"""Name of the mesh axis and of the logical axis."""

Arrays = Mapping[str, jax.Array]
Axes = tuple[str | None, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A fragment's part of one parameter: all of it, or every ``stride``-th slice along an axis.

    Args:
        axes: the parameter's logical axes.
        axis: axis along which its layers are stacked; None for the whole parameter.
        start, stride, count: the slices.
    """

    axes: Axes
    axis: int | None = None
    start: int = 0
    stride: int = 1
    count: int = 1

    def of(self, x: jax.Array) -> jax.Array:
        """Returns the part of ``x``, which may have more leading axes."""
        if self.axis is None:
            return x
        axis = self.axis + x.ndim - len(self.axes)
        end = self.start + self.stride * (self.count - 1) + 1
        return jax.lax.slice_in_dim(x, self.start, end, self.stride, axis)

    def into(self, x: jax.Array, new: jax.Array) -> jax.Array:
        """Returns ``x`` with ``new`` in place of the part; its other slices keep their bits."""
        if self.axis is None:
            return new
        axis = self.axis + x.ndim - len(self.axes)
        length = x.shape[axis]
        after = length - self.start - self.stride * (self.count - 1) - 1
        padding = [(0, 0, 0)] * x.ndim
        padding[axis] = (self.start, after, self.stride - 1)
        spread = jax.lax.pad(new, jnp.zeros((), new.dtype), padding)
        numbers = jnp.arange(length).reshape([length if dim == axis else 1 for dim in range(x.ndim)])
        left = (
            (numbers >= self.start) & (numbers < length - after) & ((numbers - self.start) % self.stride == 0)
        )
        return jnp.where(left, spread, x)


Parts = Mapping[str, Part]


def due(config: DilocoConfig, step: Any, delay: int) -> Any:
    """Returns 1 + the number of the fragment synchronised ``delay`` steps before ``step``, or 0 if there is none.

    Args:
        config: period and fragments.
        step: number of steps made, this one included; a Python int or a traced integer.
        delay: 0 for the fragment to synchronise now; ``config.delay`` for the one whose result is applied now.
    """
    number, rest = step // config.gap, step % config.gap
    return (rest == delay) * (number > 0) * ((number + config.fragments - 1) % config.fragments + 1)


def replica_axis(config: ModelConfig) -> str | None:
    """Returns the axis of the ambient mesh that replicas are mapped over; None if none splits them.

    Args:
        config: config of the model.

    Raises:
        ShardingError: an explicit mesh without that axis, or with dropless experts; experts in a pipeline.
    """
    mesh = jax.sharding.get_abstract_mesh()
    explicit = AxisType.Explicit in mesh.axis_types
    if explicit and REPLICA not in mesh.shape:
        raise ShardingError(
            f"got the explicit mesh {dict(mesh.shape)}, expected an axis {REPLICA!r}: what replicas choose by "
            "value has no sharding there; add the axis, of size 1 if need be, or give the mesh auto axes",
            "replicas",
        )
    if explicit and config.moe and config.moe.dispatch is Dispatch.DROPLESS:
        raise ShardingError(
            "got moe.dispatch=dropless on an explicit mesh, expected dropping: JAX has no rule that runs a grouped "
            "product for several replicas there; set moe.dispatch=dropping, or give the mesh auto axes",
            "replicas",
        )
    if REPLICA in mesh.shape and config.moe and config.pipeline:
        raise ShardingError(
            "got experts in a pipeline, expected layers in sequence: JAX matches no varying axes of experts' "
            "shard_map under both stages and replicas; set pipeline=none, or train one model",
            "replicas",
        )
    # An axis of size one splits nothing, and if named it makes JAX's types of a scan under vmap disagree.
    return REPLICA if mesh.shape.get(REPLICA, 1) > 1 else None


def copies(x: jax.Array, replicas: int) -> jax.Array:
    """Returns ``[R, ...]``, a copy for each replica; by a loop, so that no compiler rounds ``x`` again to copy it."""
    return jax.lax.scan(lambda x, _: (x, x), x, length=replicas)[1]


def outer_dtype(dtype: Any) -> jnp.dtype:
    """Returns the dtype of outer parameters and their momentum: at least float32, so that small updates count."""
    return jnp.promote_types(dtype, jnp.float32)


def update_outer(
    config: DilocoConfig, parts: Parts, inner: Arrays, outer: Arrays, momentum: Arrays
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Makes the outer update of one fragment; other parameters are returned unchanged.

    Args:
        config: learning rate and momentum.
        parts: the fragment.
        inner: trained parameters of all replicas ``[R, ...]``.
        outer, momentum: ``[...]``.

    Returns:
        ``(outer, momentum)``.

    Source: Douillard et al., DiLoCo, arXiv:2311.08105, algorithm 1; Nesterov momentum as in SGD.
    """
    outer, momentum = dict(outer), dict(momentum)
    for path, part in parts.items():
        before = part.of(outer[path])
        mean = jnp.mean(part.of(inner[path]).astype(before.dtype), axis=0)
        gradient = before - mean
        trace = config.momentum * part.of(momentum[path]) + gradient
        update = gradient + config.momentum * trace
        outer[path] = part.into(outer[path], before - config.learning_rate * update)
        momentum[path] = part.into(momentum[path], trace)
    return outer, momentum


def take_outer(
    config: DilocoConfig, parts: Parts, inner: Arrays, outer: Arrays, rules: Any
) -> dict[str, jax.Array]:
    """Returns the replicas' parameters after they applied the outer ones of one fragment.

    Args:
        config: weight of a replica's own parameters.
        parts: the fragment.
        inner: trained parameters of all replicas ``[R, ...]``.
        outer: ``[...]``.
        rules: ordered logical axis rules.

    Source: Douillard et al., Streaming DiLoCo with overlapping communication, arXiv:2501.18512, equation 2.
    """
    inner, share = dict(inner), config.inner_share
    for path, part in parts.items():
        mine, right = part.of(inner[path]), part.of(outer[path])
        new = jnp.broadcast_to(right, mine.shape)
        new = constrain(new, (REPLICA, *part.axes), rules)
        if share:
            new = share * mine.astype(new.dtype) + (1 - share) * new
        inner[path] = part.into(inner[path], new.astype(mine.dtype))
    return inner


def fragment_parts(
    config: ModelConfig, diloco: DilocoConfig, leaves: Mapping[str, tuple[Axes, Sequence[int]]]
) -> tuple[dict[str, Part], ...]:
    """Assigns every trained parameter, layer by layer, to a fragment.

    Layer n of the model is in fragment ``n % F``, in any stack and layout. Layers of a pipeline are numbered by
    repeat, or by their index in the stage if there is one repeat, so that every stage has an equal part of each
    fragment. The embedding is in the first fragment, all else outside the decoder in the last.

    Args:
        config: the stacks.
        diloco: number of fragments.
        leaves: ``{path: (logical axes, shape)}`` of one replica's parameters.

    Returns:
        ``{path: part}`` for each fragment.

    Raises:
        ConfigError: a fragment is empty.
        ValueError: a parameter of the decoder is in no stack.
    """
    F = diloco.fragments
    parts: tuple[dict[str, Part], ...] = tuple({} for _ in range(F))
    places = _places(config)
    for path, (axes, shape) in leaves.items():
        place = _place(path, places, F)
        axis = None if place.axis is None else axes.index(place.axis)
        numbers = [place.first + k * place.stride for k in range(1 if axis is None else shape[axis])]
        for fragment in range(F):
            mine = [k for k, number in enumerate(numbers) if number % F == fragment]
            if len(mine) == len(numbers):
                parts[fragment][path] = Part(axes=axes)
            elif mine:
                stride = mine[1] - mine[0] if len(mine) > 1 else 1
                part = Part(axes=axes, axis=axis, start=mine[0], stride=stride, count=len(mine))
                parts[fragment][path] = part
    empty = [number for number, part in enumerate(parts) if not part]
    if empty:
        rule = f"few enough that each has layers; {empty} have none of {config.layers} layers"
        raise ConfigError("diloco.fragments", F, rule)
    return parts


@dataclasses.dataclass(frozen=True)
class _Place:
    """Numbers of the layers of a module: ``first + k * stride`` for slice k along the axis named ``axis``."""

    first: int
    axis: str | None = None
    stride: int = 0


def _place(path: str, places: Mapping[str, _Place], fragments: int) -> _Place:
    top = path.split("/")[0]
    if top != "decoder":
        return _Place(0 if top == "embedder" else fragments - 1)
    holders = [where for where in places if path.startswith(where)]
    if not holders:
        raise ValueError(
            f"fragment_parts: got the parameter {path}, expected one of a stack at {', '.join(places)}; "
            "give its stack a place"
        )
    return places[max(holders, key=len)]


def _places(config: ModelConfig) -> dict[str, _Place]:
    """Returns ``{path of a module: numbers of the layers there}``."""
    places: dict[str, _Place] = {}
    for stack in config.stacks:
        if not isinstance(stack, PipelinedStack):
            places |= _held("decoder", stack, stack.first)
            continue
        held = _held(f"decoder/{stack.name}/stages", config.stage.stacks[0], stack.first)
        if config.staging.repeats > 1:
            held = {where: _Place(place.first, "repeats", 1) for where, place in held.items()}
        places |= held
    return places


def _held(where: str, stack: Stack, first: int) -> dict[str, _Place]:
    period = len(stack.cycle)
    if stack.layout is LayerLayout.UNROLLED:
        return {f"{where}/{name}/": _Place(first + index) for index, name in enumerate(stack.layers)}
    if period == 1:
        return {f"{where}/{stack.name}/": _Place(first, stack.axis, 1)}
    return {
        f"{where}/{stack.name}/block_{index}/": _Place(first + index, stack.axis, period)
        for index in range(period)
    }
