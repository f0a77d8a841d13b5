"""The loop of a pipeline: weights of each stage at an iteration, and times of gathering.

S stage, R repeat, L layer of a stage, M microbatch, B rows of a microbatch, T position, D embed.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec

from models_nnx.shared.config import Dispatch, Gather, Loop, ModelConfig, PipelineConfig
from models_nnx.shared.mesh import as_axes, as_entry
from models_nnx.shared.ops.stages import STAGE, Buffers, StageTransfers, on_stages
from models_nnx.shared.sharding import ShardingError, place, resolve, zeros

__all__ = ["Inputs", "Pipe", "Weights", "refuse_caching", "stage_key"]

GATHERED = ("fsdp", "fsdp_transpose")
"""The mesh axes that weights are gathered over."""

Leaves = list[jax.Array]
Iterate = Callable[["Weights", Any, jax.Array, jax.Array], tuple[jax.Array, Any]]


class Same(NamedTuple):
    """Weights ``[S, ...]`` that every iteration uses."""

    leaves: Leaves


class Stacked(NamedTuple):
    """Weights ``[R, S, ...]``; each stage uses those of its repeat."""

    leaves: Leaves


class Window(NamedTuple):
    """Weights ``[S, ...]`` of two repeats.

    Args:
        current: those of the previous repeat, for the stages that are still in it.
        upcoming: those of ``repeat``, for every stage.
        repeat: number of the later repeat.
    """

    current: Leaves
    upcoming: Leaves
    repeat: jax.Array


Weights = Same | Stacked | Window


class Inputs(NamedTuple):
    """Inputs without a gradient.

    Args:
        segments_MBT: document of each token, by microbatch.
        positions_MBT: position of each token in its document.
        key: dropout key of the pipeline; None without dropout.
    """

    segments_MBT: jax.Array
    positions_MBT: jax.Array
    key: jax.Array | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pipe:
    """One pipeline on the ambient mesh.

    Args:
        config: stages, microbatches, forms of the loops and of gathering.
        moves: transfers of the activations.
        specs: spec of each leaf of the weights ``[R, S, ...]``; without R if there is one repeat.
    """

    config: PipelineConfig
    moves: StageTransfers
    specs: tuple[PartitionSpec, ...]

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        axes: Sequence[Sequence[str | None] | None],
        leaves: Leaves,
        x_BTD: jax.Array,
    ) -> "Pipe":
        """Returns the pipeline of a model's main stack for a batch.

        Args:
            config: the model, with a pipeline.
            axes: the logical axes of each leaf; None for state that has none.
            leaves: the stacked weights.
            x_BTD: the batch.

        Raises:
            ShardingError: the ambient mesh does not fit the stages, the batch or a leaf.
        """
        mesh = jax.sharding.get_abstract_mesh()
        explicit = AxisType.Explicit in mesh.axis_types
        if explicit and config.moe and config.moe.dispatch is Dispatch.DROPLESS:
            raise ShardingError(
                "got moe.dispatch=dropless on an explicit mesh, expected dropping: JAX has no rule that runs a grouped "
                "product for several stages there; set moe.dispatch=dropping, or give the mesh auto axes",
                "pipeline",
            )
        moves = StageTransfers.of(config.staging.schedule, config.rules, x_BTD.shape)
        front = tuple(name for name, _ in config.staging.axes)
        specs = tuple(
            resolve(
                names or (*front, *[None] * (leaf.ndim - len(front))),
                *(leaf.shape, config.rules, mesh, "pipeline weights"),
            )
            for names, leaf in zip(axes, leaves, strict=True)
        )
        return cls(config=config.staging, moves=moves, specs=specs)

    def inputs(self, segments_BT: jax.Array, positions_BT: jax.Array, key: jax.Array | None) -> Inputs:
        """Returns the inputs of the iterations other than weights and activations."""
        return Inputs(self.moves.split(segments_BT), self.moves.split(positions_BT), key)

    def of_stages(self, inputs: Inputs, iteration: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns segments and positions of each stage's microbatch, and the stages' numbers."""
        segments_SBT = self.moves.pick(inputs.segments_MBT, iteration)
        positions_SBT = self.moves.pick(inputs.positions_MBT, iteration)
        numbers_S = place(jnp.arange(self.config.stages), PartitionSpec(STAGE))
        return segments_SBT, positions_SBT, numbers_S

    def chosen(self, weights: Weights, iteration: jax.Array) -> Leaves:
        """Returns the weights ``[S, ...]`` that the stages use at an iteration."""
        schedule, none = self.config.schedule, PartitionSpec()
        if isinstance(weights, Same):
            return weights.leaves

        def own_repeat(iteration):
            return schedule.repeat(iteration, jax.lax.axis_index(STAGE))

        if isinstance(weights, Stacked):

            def slice_own(leaf, iteration):
                return jax.lax.dynamic_index_in_dim(leaf, own_repeat(iteration), 0, keepdims=False)

            specs = self._gathered if self.config.gather is Gather.ONCE else self.specs
            return [
                on_stages(slice_own, (spec, none), PartitionSpec(*spec[1:]))(leaf, iteration)
                for leaf, spec in zip(weights.leaves, specs, strict=True)
            ]

        def own_of_two(current, upcoming, repeat, iteration):
            return jnp.where(own_repeat(iteration) == repeat, upcoming, current)

        return [
            on_stages(own_of_two, (spec, spec, none, none), spec)(*two, weights.repeat, iteration)
            for *two, spec in zip(weights.current, weights.upcoming, self._gathered_repeat, strict=True)
        ]

    def run(
        self, iterate: Iterate, leaves: Leaves, inputs: Inputs, x_BTD: jax.Array
    ) -> tuple[jax.Array, Any]:
        """Runs all iterations.

        Args:
            iterate: ``(weights, inputs, x_SBTD, iteration) -> (out_SBTD, aside)``: all stages at once.
            leaves: the stacked weights.
            inputs: as from `inputs`.
            x_BTD: the batch.

        Returns:
            ``(out_BTD, aside)``, with the stages' sown values stacked like the weights; see `StageTransfers.collect`.
        """
        buffers = self.moves.enter(x_BTD)
        leaves = [place(leaf, spec) for leaf, spec in zip(leaves, self.specs, strict=True)]
        if self.config.gather is Gather.PER_REPEAT:
            buffers, aside = self._prefetched(iterate)(leaves, inputs, buffers)
        else:
            if self.config.gather is Gather.ONCE:
                leaves = [place(leaf, spec) for leaf, spec in zip(leaves, self._gathered, strict=True)]
            weights = Stacked(leaves) if self.config.repeats > 1 else Same(leaves)
            numbers = jnp.arange(self.config.schedule.iterations)
            buffers, aside = self._iterations(iterate, weights, inputs, buffers, numbers)
        return self.moves.leave(buffers), self.moves.collect(aside, inputs.segments_MBT)

    def _iterations(self, iterate: Iterate, weights: Weights, inputs, buffers: Buffers, numbers: jax.Array):
        def body(buffers, iteration):
            x_SBTD = self.moves.take(buffers, iteration)
            out_SBTD, aside = iterate(weights, inputs, x_SBTD, iteration)
            return self.moves.advance(buffers, out_SBTD, iteration), aside

        return _loop(body, buffers, numbers, self.config.iteration_loop)

    def _prefetched(self, iterate: Iterate):
        """Returns the loop over repeats, each of which gathers its weights once, forward and backward.

        The backward pass visits the repeats in reverse order. It runs each one again from its saved start, then
        backward, and meanwhile gathers the weights of the previous repeat. So only the last repeat's weights are
        residuals: the backward pass needs them immediately.
        """
        M, R = self.config.microbatches, self.config.repeats

        def repeat(current, upcoming, inputs, buffers, number):
            window = Window(current, upcoming, number)
            numbers = number * M + jnp.arange(M)
            return self._iterations(iterate, window, inputs, buffers, numbers)

        def drain(last, inputs, buffers):
            numbers = M * R + jnp.arange(self.config.schedule.lag)
            # No stage is ever in the repeat after the last: all use the last one's weights.
            after_all = jnp.full((), R, jnp.int32)
            window = Window(last, last, after_all)
            return self._iterations(iterate, window, inputs, buffers, numbers)

        @jax.custom_vjp
        def run(leaves, inputs, buffers):
            return forward(leaves, inputs, buffers)[0]

        def forward(leaves, inputs, buffers):
            def body(carry, number):
                buffers, current = carry
                upcoming = self._gather(leaves, number)
                after, aside = repeat(current, upcoming, inputs, buffers, number)
                return (after, upcoming), (buffers, aside)

            carry = (buffers, self._nothing(leaves))
            (late, last), (starts, asides) = _loop(body, carry, jnp.arange(R), self.config.repeat_loop)
            end, aside = drain(last, inputs, late)
            return (end, (asides, aside)), (leaves, inputs, starts, late, last)

        def backward(residuals, cotangents):
            leaves, inputs, starts, late, last = residuals
            d_buffers, (d_asides, d_aside) = cotangents
            pull = jax.vjp(lambda last, late: _differentiable(drain(last, inputs, late)), last, late)[1]
            d_upcoming, d_buffers = pull((d_buffers, _trainable(d_aside)))

            def body(carry, of_repeat):
                d_buffers, d_upcoming, upcoming = carry
                number, start, d_aside = of_repeat
                current = self._gather(leaves, jnp.maximum(number - 1, 0))

                def again(current, upcoming, start):
                    return _differentiable(repeat(current, upcoming, inputs, start, number))

                _, pull = jax.vjp(again, current, upcoming, start)
                d_current, d_more, d_buffers = pull((d_buffers, d_aside))
                d_leaves = self._scatter(jax.tree.map(jnp.add, d_upcoming, d_more))
                return (d_buffers, d_current, current), d_leaves

            carry = (d_buffers, d_upcoming, last)
            numbers = (jnp.arange(R), starts, _trainable(d_asides))
            (d_buffers, _, _), d_leaves = _loop(body, carry, numbers, self.config.repeat_loop, reverse=True)
            return d_leaves, None, d_buffers

        run.defvjp(forward, backward)

        def flat(leaves, inputs, buffers):
            buffers, (asides, aside) = run(leaves, inputs, buffers)
            return buffers, jax.tree.map(
                lambda many, few: jnp.concatenate([many.reshape(M * R, *many.shape[2:]), few]), asides, aside
            )

        return flat

    @property
    def _gathered(self) -> tuple[PartitionSpec, ...]:
        return tuple(
            PartitionSpec(*(as_entry([a for a in as_axes(entry) if a not in GATHERED]) for entry in spec))
            for spec in self.specs
        )

    @property
    def _gathered_repeat(self) -> tuple[PartitionSpec, ...]:
        return tuple(PartitionSpec(*spec[1:]) for spec in self._gathered)

    def _gather(self, leaves: Leaves, repeat: jax.Array) -> Leaves:
        return [
            place(jax.lax.dynamic_index_in_dim(leaf, repeat, 0, keepdims=False), spec)
            for leaf, spec in zip(leaves, self._gathered_repeat, strict=True)
        ]

    def _scatter(self, d_leaves: Leaves) -> Leaves:
        return [
            place(leaf, PartitionSpec(*spec[1:])) for leaf, spec in zip(d_leaves, self.specs, strict=True)
        ]

    def _nothing(self, leaves: Leaves) -> Leaves:
        return [
            zeros(leaf.shape[1:], leaf.dtype, spec)
            for leaf, spec in zip(leaves, self._gathered_repeat, strict=True)
        ]


def stage_key(key: jax.Array | None, iteration: jax.Array, stage: jax.Array) -> dict[str, jax.Array] | None:
    """Returns the dropout stream of one stage at one iteration, distinct from all others; None without a key."""
    if key is None:
        return None
    return {"dropout": jax.random.fold_in(jax.random.fold_in(key, iteration), stage)}


def refuse_caching(caching: Any) -> None:
    """Checks that caching is not requested.

    Raises:
        ValueError: it is requested.
    """
    if caching is not None:
        raise ValueError(
            f"pipeline: got caching={caching}, expected none: stages do not decode; set pipeline to None and give "
            "the model the stacked weights, repeat by repeat and stage by stage"
        )


def _trainable(tree: Any) -> list[jax.Array]:
    """Returns the leaves that have gradients, or are gradients of such leaves."""
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def _differentiable(result: tuple[Buffers, Any]) -> tuple[Buffers, list[jax.Array]]:
    buffers, aside = result
    return buffers, _trainable(aside)


def _loop(body, carry, numbers, loop: Loop, *, reverse: bool = False):
    length = jax.tree.leaves(numbers)[0].shape[0]
    unroll = length if loop is Loop.UNROLLED else 1
    return jax.lax.scan(body, carry, numbers, reverse=reverse, unroll=unroll)
