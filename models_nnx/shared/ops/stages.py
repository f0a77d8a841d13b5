"""Transfers between the stages of a pipeline.

S stage, M microbatch, W waiting slot, B rows of a microbatch, T position, D embed.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from models_nnx.shared.ops.accumulation import split_rows
from models_nnx.shared.schedule import Schedule
from models_nnx.shared.sharding import Rules, ShardingError, constrain, place, resolve, zeros

__all__ = ["STAGE", "Buffers", "StageTransfers", "on_stages"]

STAGE = "stage"
"""The mesh axis, and the logical axis of stacked parameters."""

ROWS = ("activation_batch", "activation_length", "activation_embed")


class Buffers(NamedTuple):
    """Activations between two iterations; each device holds its stage's part.

    Args:
        waiting_SWBTD: inputs that wait, then outputs.
        shift_SBTD: the next input of each stage.
        storage_SMBTD: microbatches that wait for their next repeat on the first stage; None if none has to wait.
        mover_SBTD: the previous result, in transfer to the storage; None without a storage.
        previous_SBTD: the previous result, sent one iteration later; None with a delay of 1.
    """

    waiting_SWBTD: jax.Array
    shift_SBTD: jax.Array
    storage_SMBTD: jax.Array | None
    mover_SBTD: jax.Array | None
    previous_SBTD: jax.Array | None


def on_stages(function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """Returns ``function``, run by each device on its part; a ``jax.shard_map`` on the ambient mesh."""
    return jax.shard_map(function, in_specs=in_specs, out_specs=out_specs)


def require_stages(stages: int) -> None:
    """Checks that the ambient mesh has an axis ``stage`` of size ``stages``.

    Raises:
        ShardingError: it has no such axis.
    """
    sizes = dict(jax.sharding.get_abstract_mesh().shape)
    if sizes.get(STAGE) != stages:
        raise ShardingError(
            f"got the mesh {sizes or 'of no axes'}, expected an axis {STAGE!r} of size {stages} "
            "(pipeline.stages); add it to the mesh, change pipeline.stages, or set pipeline to None",
            "pipeline",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageTransfers:
    """The buffers of one pipeline, and their changes.

    Args:
        schedule: schedule of the microbatches.
        rules: ordered logical axis rules.
        moving: spec of ``[S, B, T, D]``.
    """

    schedule: Schedule
    rules: Rules
    moving: PartitionSpec

    @classmethod
    def of(cls, schedule: Schedule, rules: Rules, shape: tuple[int, ...]) -> "StageTransfers":
        """Returns the transfers of a batch of ``shape`` ``(rows, T, D)`` on the ambient mesh.

        Raises:
            ShardingError: the mesh does not fit the stages, or the rows do not divide into microbatches.
        """
        require_stages(schedule.stages)
        rows, *rest = shape
        if rows % schedule.microbatches:
            raise ShardingError(
                f"got {rows} rows for {schedule.microbatches} microbatches, expected a multiple; change the batch "
                "or pipeline.microbatches",
                "pipeline",
            )
        one = (schedule.stages, rows // schedule.microbatches, *rest)
        mesh = jax.sharding.get_abstract_mesh()
        spec = resolve(("activation_stage", *ROWS), one, rules, mesh, "pipeline microbatch")
        return cls(schedule=schedule, rules=rules, moving=spec)

    @property
    def kept(self) -> PartitionSpec:
        """Spec of ``[S, W, B, T, D]``."""
        return PartitionSpec(self.moving[0], None, *self.moving[1:])

    def split(self, x: jax.Array) -> jax.Array:
        """Returns the microbatches ``[M, B, ...]`` of ``x [rows, ...]``, placed by the rules."""
        x = split_rows(x, self.schedule.microbatches)
        return constrain(x, (None, *ROWS[: x.ndim - 1]), self.rules)

    def enter(self, x_BTD: jax.Array) -> Buffers:
        """Returns the buffers before the first iteration: all microbatches wait."""
        schedule = self.schedule
        x_MBTD = self.split(x_BTD)
        one, dtype = (schedule.stages, *x_MBTD.shape[1:]), x_MBTD.dtype
        waiting = x_MBTD.reshape(schedule.stages, schedule.slots, *x_MBTD.shape[1:])

        def empty(wanted: bool):
            return zeros(one, dtype, self.moving) if wanted else None

        storage = (schedule.stages, schedule.microbatches, *one[1:])
        return Buffers(
            waiting_SWBTD=place(waiting, self.kept),
            shift_SBTD=zeros(one, dtype, self.moving),
            storage_SMBTD=zeros(storage, dtype, self.kept) if schedule.has_storage else None,
            mover_SBTD=empty(schedule.has_storage),
            previous_SBTD=empty(schedule.delay > 1),
        )

    def pick(self, x_MBT: jax.Array, iteration: jax.Array) -> jax.Array:
        """Returns ``[S, B, T]``: the part of ``x_MBT``, such as the segments, of each stage's microbatch."""

        def local(x_MBT, iteration):
            stage = jax.lax.axis_index(STAGE)
            return _at(x_MBT, self.schedule.microbatch(iteration, stage), 0)[None]

        spec = self.moving[: x_MBT.ndim]
        whole = PartitionSpec(None, *spec[1:])
        return on_stages(local, (whole, PartitionSpec()), PartitionSpec(*spec))(x_MBT, iteration)

    def take(self, buffers: Buffers, iteration: jax.Array) -> jax.Array:
        """Returns ``[S, B, T, D]``: the input of each stage."""
        schedule = self.schedule

        def local(buffers: Buffers, iteration):
            waiting = _at(buffers.waiting_SWBTD, schedule.slot(iteration), 1)
            again = buffers.shift_SBTD
            if buffers.storage_SMBTD is not None:
                again = _at(buffers.storage_SMBTD, schedule.stored(iteration), 1)
            first = jnp.where(iteration < schedule.microbatches, waiting, again)
            return jnp.where(jax.lax.axis_index(STAGE) == 0, first, buffers.shift_SBTD)

        return on_stages(local, (self._specs(buffers), PartitionSpec()), self.moving)(buffers, iteration)

    def advance(self, buffers: Buffers, out_SBTD: jax.Array, iteration: jax.Array) -> Buffers:
        """Returns the buffers after an iteration that made ``out_SBTD``."""
        schedule, last = self.schedule, self.schedule.stages - 1
        right = [(stage, stage + 1) for stage in range(last)]  # the first stage gets zeros
        left = [(stage + 1, stage) for stage in range(last)]
        ring = [*right, (last, 0)]

        def local(buffers: Buffers, out, iteration):
            leaving = out if buffers.previous_SBTD is None else buffers.previous_SBTD
            shift = jax.lax.ppermute(leaving, STAGE, ring if schedule.rotates else right)
            waiting, slot = buffers.waiting_SWBTD, schedule.slot(iteration)
            moved = jax.lax.ppermute(_at(waiting, slot, 1), STAGE, left)
            moved = jnp.where(jax.lax.axis_index(STAGE) == last, out, moved)
            storage = buffers.storage_SMBTD
            if storage is not None:
                arrived = jax.lax.ppermute(buffers.mover_SBTD, STAGE, ring)
                storage = _put_at(storage, arrived, schedule.storing(iteration))
            return Buffers(
                waiting_SWBTD=_put_at(waiting, moved, slot),
                shift_SBTD=shift,
                storage_SMBTD=storage,
                mover_SBTD=None if storage is None else out,
                previous_SBTD=None if buffers.previous_SBTD is None else out,
            )

        specs = self._specs(buffers)
        return on_stages(local, (specs, self.moving, PartitionSpec()), specs)(buffers, out_SBTD, iteration)

    def leave(self, buffers: Buffers) -> jax.Array:
        """Returns the outputs ``[rows, T, D]`` after the last iteration, on every stage."""
        out_SWBTD = jnp.roll(buffers.waiting_SWBTD, -self.schedule.first_slot, axis=1)
        out_SWBTD = place(out_SWBTD, PartitionSpec(None, *self.kept[1:]))
        out_MBTD = out_SWBTD.reshape(self.schedule.microbatches, *out_SWBTD.shape[2:])
        out_BMTD = jnp.swapaxes(out_MBTD, 0, 1)
        return constrain(out_BMTD.reshape(-1, *out_BMTD.shape[2:]), ROWS, self.rules)

    def collect(self, aside: Any, segments_MBT: jax.Array) -> Any:
        """Returns the sown values of the stages as ``[R, S, ...]``, without bubbles; without R if there is one repeat.

        Loads are summed over microbatches. Balances are averaged with equal weight for each token. Routing choices
        get the rows of the whole batch.

        Args:
            aside: tree of ``[iterations, S, ...]`` whose last names are those that `Moe` sows.
            segments_MBT: 0 where there is no token.
        """
        schedule = self.schedule
        M, R = schedule.microbatches, schedule.repeats

        def local(x, share_M, rows: int | None):
            start = schedule.delay * jax.lax.axis_index(STAGE)
            x = jax.lax.dynamic_slice_in_dim(x, start, M * R).reshape(R, M, *x.shape[1:])
            if rows is not None:
                x = jnp.moveaxis(x, 1, rows)
                x = x.reshape(*x.shape[: rows - 1], -1, *x.shape[rows + 1 :])
            elif share_M is None:
                x = jnp.sum(x, axis=1)
            else:
                x = jnp.tensordot(share_M.astype(x.dtype), x, (0, 1))
            return x if R > 1 else x[0]

        def collected(path, x):
            name = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)][-1]
            trailing = {"margin": 2, "preferred": 3}.get(name)
            rows = None if trailing is None else x.ndim + 1 - trailing
            spec = [None, STAGE, *[None] * (x.ndim - 2)]
            if rows is not None:
                spec[rows - 1 : rows + 1] = self.moving[1:3]
            given, made = PartitionSpec(*spec), [*[None] * (R > 1), STAGE, *spec[2:]]
            run = on_stages(
                functools.partial(local, rows=rows), (given, PartitionSpec()), PartitionSpec(*made)
            )
            x = run(place(x, given), share_M if name == "load_balance" else None)
            return place(x, PartitionSpec(*(None if entry == STAGE else entry for entry in made)))

        tokens_M = jnp.sum(segments_MBT != 0, axis=(1, 2)).astype(jnp.float32)
        share_M = tokens_M / jnp.maximum(jnp.sum(tokens_M), 1)
        return jax.tree_util.tree_map_with_path(collected, aside)

    def _specs(self, buffers: Buffers) -> Any:
        """Returns the buffers with each array replaced by its spec."""
        return jax.tree.map(lambda x: self.kept if x.ndim == 5 else self.moving, buffers)


def _at(x: jax.Array, index: jax.Array, axis: int) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(x, index, axis, keepdims=False)


def _put_at(x: jax.Array, update: jax.Array, index: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_index_in_dim(x, update, index, 1)
