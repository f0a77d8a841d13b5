"""Processor time of one call of a compiled step in every way to call it: docs/benchmark.md, How to call a step.

``python tests/campaigns harness.dispatch`` compares a decoder in NNX with Linen's only way. The step adds one to each
leaf, cut to one element.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

from parity.compare.backends.environment import prepare

prepare()

import jax
import jax.numpy as jnp
from flax import nnx

from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.constants import Constants, take_apart, traceable, traced_once
from parity.builds.tree import Codec, flatten
from parity.compare.timing.rounds import ROUNDS, Paired, interleave
from parity.ir.jax_internals import key_implementation
from parity.matrix.decoders import Variant, builder
from parity.report.bench import amount

BRIEF = 0.02
"""Least number of seconds for the calls of one round."""
MOST_CALLS = 1_000
BATCH = {name: jnp.zeros((), jnp.int32) for name in ("tokens", "targets", "segments", "positions")}

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


def _small(leaf: Any) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key(0, impl=key_implementation(leaf.dtype))
    return jnp.zeros((), leaf.dtype)


def _more(leaf: Any) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return ~leaf if leaf.dtype == bool else leaf + jnp.ones((), leaf.dtype)


def _step(state: Any, batch: Any) -> tuple[Any, Any]:
    return jax.tree.map(_more, state), jax.tree.map(_more, batch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """The state of a build, and the ways to call a step of it.

    Args:
        abstract: flat.
        ways: by name, the recommended one first.
    """

    abstract: Mapping[str, Any]
    ways: Mapping[str, Way]


def linen_side(create: Callable[[jax.Array], Any]) -> Side:
    """Returns the side of a state tree."""
    example, _ = traced_once(create)
    return Side(abstract=flatten(example), ways=linen_ways(Codec(example)))


def nnx_side(create: Callable[[jax.Array], nnx.Module]) -> Side:
    """Returns the side of a module that holds all state."""
    graphdef, example, constants, _ = take_apart(traceable(create))
    return Side(abstract=flatten(example), ways=nnx_ways(graphdef, Codec(example), constants))


def _calls(side: Side, way: Way) -> Callable[[], float]:
    """Returns a function that calls the step repeatedly and returns the seconds of one call."""
    loop = way({path: _small(leaf) for path, leaf in side.abstract.items()}, dict(BATCH), _step)

    def seconds(count: int) -> float:
        start = time.process_time()
        for _ in range(count):
            metrics = loop.call()
        jax.block_until_ready((metrics, jax.tree.leaves(loop.state())))
        return (time.process_time() - start) / count

    seconds(1)
    one = seconds(5)
    return functools.partial(seconds, min(MOST_CALLS, max(5, round(BRIEF / one))))


def measure(reference: Side, candidate: Side, rounds: int) -> dict[str, Paired]:
    """Returns the seconds of a call in every way of the candidate, against the first of the reference."""
    yardstick = _calls(reference, next(iter(reference.ways.values())))
    ways = {name: _calls(candidate, way) for name, way in candidate.ways.items()}
    sides = (
        lambda: dict.fromkeys(ways, yardstick()),
        lambda: {name: once() for name, once in ways.items()},
    )
    return interleave(sides, rounds)


def main() -> None:
    """Measures a decoder in both flavours, and prints a line for each way."""
    variant = Variant("dispatch", tiny(preset("llama2-7b")))
    sides = [builder(flavour).creates(variant) for flavour in Flavour]
    for name, pair in measure(linen_side(sides[0]), nnx_side(sides[1]), ROUNDS).items():
        left, right = (amount(value) for value in pair.medians)
        print(f"{name}: {pair.middle:.2f} x ({pair.low:.2f} to {pair.high:.2f}), {right} over {left}")


if __name__ == "__main__":
    main()
