"""Skipping of updates whose loss spikes. W losses that a loss is compared with."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from models_nnx.shared.config import OptimizerConfig
from models_nnx.shared.ops.conditional import choose

__all__ = ["SpikeState", "skip_spikes"]


class SpikeState(NamedTuple):
    """Statistics of the losses so far.

    Args:
        losses_W: the last losses that led to an update, float32, oldest overwritten first.
        seen: int32, number of such losses.
        skipped: int32, number of consecutive spikes.
        total_skipped: int32, number of all spikes.
        inner_state: state of the inner optimizer.
    """

    losses_W: jax.Array
    seen: jax.Array
    skipped: jax.Array
    total_skipped: jax.Array
    inner_state: Any


def skip_spikes(
    inner: optax.GradientTransformation, config: OptimizerConfig
) -> optax.GradientTransformationExtraArgs:
    """Returns an optimizer that skips updates of ``inner`` whose loss is far above the last ones.

    A spike is not stored, so that the next loss is compared with the same losses. The update after ``max_bad_steps``
    consecutive spikes is applied, because the level of the loss has changed. ``apply_if_finite`` handles non-finite
    losses.

    Args:
        inner: the optimizer.
        config: ``spike_window``, ``spike_factor`` and ``max_bad_steps``.

    Returns:
        An optimizer whose ``update`` requires ``loss``, the mean that was differentiated.

    Raises:
        TypeError: ``update`` is called without it.
    """
    inner = optax.with_extra_args_support(inner)
    window = config.spike_window

    def init(params: Any) -> SpikeState:
        zero = jnp.zeros((), jnp.int32)
        return SpikeState(jnp.zeros(window, jnp.float32), zero, zero, zero, inner.init(params))

    def update(updates: Any, state: Any, params: Any = None, loss: jax.Array | None = None, **extra: Any):
        if loss is None:
            raise TypeError(
                "skip_spikes: got no loss, expected the mean that was differentiated; pass loss= to update"
            )
        loss = loss.astype(jnp.float32)
        limit = jnp.mean(state.losses_W) + config.spike_factor * jnp.std(state.losses_W)
        spike = (state.seen >= window) & (loss > limit)
        skipped = jnp.where(spike, state.skipped + 1, 0)
        taken = ~spike | (skipped > config.max_bad_steps)
        remembered = taken & jnp.isfinite(loss)

        def take():
            return inner.update(updates, state.inner_state, params, loss=loss, **extra)

        def skip():
            return jax.tree.map(jnp.zeros_like, updates), state.inner_state

        updates, inner_state = choose(taken, take, skip)
        place = (jnp.arange(window) == state.seen % window) & remembered
        return updates, SpikeState(
            losses_W=jnp.where(place, loss, state.losses_W),
            seen=state.seen + remembered,
            skipped=skipped,
            total_skipped=state.total_skipped + spike,
            inner_state=inner_state,
        )

    return optax.GradientTransformationExtraArgs(init, update)
