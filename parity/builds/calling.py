"""Ways to call a training step in a loop; they differ in the object that carries the state between calls."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
from flax import nnx

from parity.builds.constants import Constants
from parity.builds.tree import Codec

__all__ = ["Loop", "linen_ways", "nnx_ways"]

Step = Callable[[Any, Any], tuple[Any, Any]]
"""``(state, batch) -> (state, metrics)`` for any trees of arrays; the state is None if it does not change."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loop:
    """A step that is called repeatedly.

    Args:
        call: calls the step once without waiting, and returns the metrics.
        state: returns the state after the last call.
    """

    call: Callable[[], Any]
    state: Callable[[], Any]


Way = Callable[[Mapping[str, Any], Any, Step], Loop]
"""``(flat state, batch, step) -> loop``."""


def linen_ways(codec: Codec) -> dict[str, Way]:
    """Returns the only way to call a Linen step: ``jax.jit`` of the state tree.

    Args:
        codec: makes the state from its leaves.
    """
    return {"jax.jit": lambda flat, batch, step: _carried(codec.restore(flat), batch, step)}


def nnx_ways(graphdef: Any, codec: Codec, constants: Constants) -> dict[str, Way]:
    """Returns the ways to call an NNX step: the recommended one first, the naive one last.

    Args:
        graphdef, constants: graphdef and constants of the module, as `parity.builds.constants.take_apart` returns them.
        codec: makes the module's state from its leaves.
    """

    def module_of(state: Any) -> nnx.Module:
        return nnx.merge(graphdef, state, *constants.states())

    def change(module: nnx.Module, batch: Any, step: Step) -> tuple[bool, Any]:
        after, metrics = step(nnx.state(module, constants.is_state), batch)
        if after is not None:
            nnx.update(module, after)
        return after is not None, metrics

    def split_once(flat: Mapping[str, Any], batch: Any, step: Step) -> Loop:
        def stepped(state: Any, batch: Any) -> tuple[Any, Any]:
            module = module_of(state)
            changed, metrics = change(module, batch, step)
            return nnx.state(module, constants.is_state) if changed else None, metrics

        return _carried(codec.restore(flat), batch, stepped)

    def leaves(flat: Mapping[str, Any], batch: Any, step: Step) -> Loop:
        arrays, structure = jax.tree.flatten(codec.restore(flat))

        def stepped(arrays: list[Any], batch: Any) -> tuple[Any, Any]:
            module = module_of(jax.tree.unflatten(structure, arrays))
            changed, metrics = change(module, batch, step)
            return jax.tree.leaves(nnx.state(module, constants.is_state)) if changed else None, metrics

        return _carried(arrays, batch, stepped)

    def partial(flat: Mapping[str, Any], batch: Any, step: Step) -> Loop:
        module = module_of(codec.restore(flat))
        stepped = nnx.cached_partial(nnx.jit(lambda module, batch: change(module, batch, step)[1]), module)
        return Loop(call=lambda: stepped(batch), state=lambda: nnx.state(module, constants.is_state))

    def naive(flat: Mapping[str, Any], batch: Any, step: Step) -> Loop:
        module = module_of(codec.restore(flat))
        stepped = nnx.jit(lambda module, batch: change(module, batch, step)[1])
        return Loop(call=lambda: stepped(module, batch), state=lambda: nnx.state(module, constants.is_state))

    # cached_partial keeps only Variables of a module, and fails if it holds a plain array.
    kept = {} if constants.states() else {"nnx.cached_partial": partial}
    return {"leaves": leaves, "nnx.State": split_once, **kept, "nnx.jit": naive}


def _carried(state: Any, batch: Any, step: Step) -> Loop:
    """Returns a loop over a pure step that takes and returns the state; a state that changes is donated."""
    changes = jax.eval_shape(step, state, batch)[0] is not None
    jitted = jax.jit(step, donate_argnums=(0,) if changes else (), keep_unused=True)
    held = [state]

    def call() -> Any:
        after, metrics = jitted(held[0], batch)
        if changes:
            held[0] = after
        return metrics

    return Loop(call=call, state=lambda: held[0])
