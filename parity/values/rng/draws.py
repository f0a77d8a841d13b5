"""Evaluates the keys of a traced program, loops iteration by iteration, and records every draw."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.builds.tree import is_key
from parity.ir.interpreter import Interpreter, Position
from parity.ir.jaxprs import bind, bodies, opened
from parity.ir.location import equation_source
from parity.values.rng.demand import DRAWS, Demand, draws_within

FRAMES = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draw:
    """One use of one key.

    Args:
        shape, bits: shape of the result, width of an entry in bits.
        site: source lines, innermost first.
        equation: position in the program, equal for all iterations of a loop.
        iterations: source of each loop around it, outermost first, and number of the iteration, from 0.
        lane: index of the key if an operation draws from several keys at once, as under ``vmap``.
        step: number of the step, from 1.
        again: True if it is in the backward pass, which may repeat a draw of the forward pass.
    """

    key: tuple[int, ...]
    shape: tuple[int, ...]
    bits: int
    site: str
    equation: tuple[int, ...]
    iterations: tuple[tuple[str, int], ...] = ()
    lane: int = 0
    step: int = 1
    again: bool = False

    @property
    def use(self) -> tuple:
        """Comparison key: draws with equal keys give the same numbers."""
        return self.key, self.shape, self.bits


class Recorder(Interpreter):
    """Evaluates one step of a program as far as its draws require, and records them.

    It draws only if a key depends on the result. It does not need the devices of the program, because it ignores
    shardings.

    Attributes:
        draws: in the order of execution.
        unseen: sites of operations that draw from keys that are not followed, such as ``shard_map``.
    """

    def __init__(self, demand: Demand, step: int = 1):
        self._demand, self._step = demand, step
        self.draws: list[Draw] = []
        self.unseen: list[str] = []

    def run(self, jaxpr: Any, arguments: Sequence[Any]) -> list[Any]:
        """Returns the required outputs of a closed program; arguments are flat, and None if not required."""
        return self.body(jaxpr, arguments, Position())

    def skips(self, place: tuple[int, ...]) -> bool:
        return place not in self._demand.kept

    def operation(self, equation: Any, inputs: list[Any], here: Position) -> Sequence[Any]:
        if equation.primitive.name in DRAWS:
            self._record(equation, inputs[0], here)
        elif any(draws_within(opened(body)) for body in bodies(equation)):
            self.unseen.append(_site(equation, here.calls))
        if not self._demand.kept[here.place]:
            return [None] * len(equation.outvars)
        return bind(equation, inputs)

    def slice(self, value: Any, index: int, here: Position) -> Any:
        return None if value is None else (value if is_key(value) else np.asarray(value))[index]

    def stack(self, values: list[Any], out: Any, here: Position) -> Any:
        return jnp.stack(values) if values and values[0] is not None else None

    def _record(self, equation: Any, keys: Any, here: Position) -> None:
        keys = np.asarray(jax.random.key_data(keys) if is_key(keys) else keys)
        words, params = keys.reshape(-1, keys.shape[-1]), equation.params
        iterations = tuple((_site(loop).split(" < ")[0], index) for loop, index in here.iterations)
        self.draws += [
            Draw(
                key=tuple(map(int, key)),
                shape=tuple(params.get("shape", equation.outvars[0].aval.shape)),
                bits=params.get("bit_width", 32),
                site=_site(equation, here.calls),
                equation=here.place,
                iterations=iterations,
                lane=lane,
                step=self._step,
                again=here.backward,
            )
            for lane, key in enumerate(words)
        ]


@functools.lru_cache(maxsize=4_096)
def _site(equation: Any, calls: tuple[Any, ...] = ()) -> str:
    """Returns the innermost source lines of an equation, preferably those of the user's files."""
    source = equation_source(equation, calls)
    lines = source.own or source.frames
    return " < ".join(map(str, lines[:FRAMES])) or (calls[0] if calls else equation).primitive.name
