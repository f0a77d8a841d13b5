"""Evaluates the keys of a traced program, loops iteration by iteration, and records every draw."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.builds.tree import is_key
from parity.ir.interpreter import Interpreter, Position, along
from parity.ir.jaxprs import bind, bodies, opened
from parity.ir.location import Frame, equation_source
from parity.values.rng.demand import DRAWS, Demand, draws_within

FRAMES, THREEFRY = 3, "threefry2x32"
MAKERS = frozenset({"random_fold_in", "random_seed", "random_split", "random_wrap"})
"""Operations that make keys."""
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
"""Constants of Threefry, JAX's default generator; to compile it takes as long as to derive thousands of keys here."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draw:
    """One use of one key.

    Args:
        shape, bits: shape of the result, width of an entry in bits.
        site: innermost source lines.
        calls: all source lines, innermost first.
        made: the source line that makes the key; None if it is an argument.
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
    calls: tuple[Frame, ...] = ()
    made: Frame | None = None

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
        self._makers: dict[tuple[int, ...], tuple[Any, tuple[Any, ...]]] = {}

    def run(self, jaxpr: Any, arguments: Sequence[Any]) -> list[Any]:
        """Returns the required outputs of a closed program; arguments are flat, and None if not required."""
        return [*map(_typed, self.body(jaxpr, arguments, Position()))]

    def skips(self, place: tuple[int, ...]) -> bool:
        return place not in self._demand.kept

    def operation(self, equation: Any, inputs: list[Any], here: Position) -> Sequence[Any]:
        if equation.primitive.name in DRAWS:
            self._record(equation, inputs[0], here)
        elif any(draws_within(opened(body)) for body in bodies(equation)):
            self.unseen.append(_site(equation, here.calls))
        if not self._demand.kept[here.place]:
            return [None] * len(equation.outvars)
        name = equation.primitive.name
        function = ON_WORDS.get(name)
        if function is not None and isinstance(keys := _words(inputs[0]), Words):
            results = [function(keys, *inputs[1:], **equation.params)]
        else:
            results = [*map(_words, bind(equation, [*map(_typed, inputs)]))]
        if name in MAKERS and isinstance(results[0], Words):
            for key in results[0].reshape(-1, results[0].shape[-1]).tolist():
                self._makers.setdefault(tuple(key), (equation, here.calls))
        return results

    def slice(self, value: Any, index: int, here: Position) -> Any:
        return None if value is None else (value if is_key(value) else np.asanyarray(value))[index]

    def stack(self, values: list[Any], out: Any, here: Position) -> Any:
        if not values or values[0] is None:
            return None
        return np.stack(values).view(Words) if isinstance(values[0], Words) else jnp.stack(values)

    def selected(self, decided: Any, new: Any, old: Any, here: Position) -> Any:
        if new is None or old is None:
            return None
        mask = along(np.asarray(decided), new)
        if isinstance(new, Words):
            return np.where(mask, new, _words(old)).view(Words)
        return jnp.where(mask, new, old)

    def _record(self, equation: Any, keys: Any, here: Position) -> None:
        keys = jax.random.key_data(keys) if is_key(keys) else keys
        rows, params = np.asarray(keys).reshape(-1, keys.shape[-1]).tolist(), equation.params
        iterations = tuple((_site(loop).split(" < ")[0], index) for loop, index in here.iterations)
        # Some loops of a batch may have ended.
        batches = [np.ravel(one) for one in here.conditions if np.ndim(one)]
        continuing = [np.repeat(one, len(rows) // one.size) for one in batches if len(rows) % one.size == 0]
        self.draws += [
            Draw(
                key=key,
                shape=tuple(params.get("shape", equation.outvars[0].aval.shape)),
                bits=params.get("bit_width", 32),
                site=_site(equation, here.calls),
                equation=here.place,
                iterations=iterations,
                lane=lane,
                step=self._step,
                again=here.backward,
                calls=_lines(equation, here.calls),
                made=next(iter(_lines(*maker)), None) if maker else None,
            )
            for lane, (key, maker) in enumerate((key, self._makers.get(key)) for key in map(tuple, rows))
            if all(one[lane] for one in continuing)
        ]


class Words(np.ndarray):
    """Keys of Threefry as numbers on the host, where they are sliced and derived in a tenth of the time."""


def _words(value: Any) -> Any:
    """Returns keys of Threefry as words, and any other value unchanged."""
    known = is_key(value) and jax.random.key_impl(value) == THREEFRY and jax.threefry_partitionable.value
    return np.asarray(jax.random.key_data(value)).view(Words) if known else value


def _typed(value: Any) -> Any:
    known = isinstance(value, Words)
    return jax.random.wrap_key_data(jax.device_put(np.asarray(value)), impl=THREEFRY) if known else value


def _derived_keys(keys: Words, data: Any = None, shape: tuple[int, ...] = ()) -> Words:
    """Returns the keys of a shape that each key gives for numbers; these are 0, 1, ... by default."""
    counts = np.asarray(np.arange(math.prod(shape)).reshape(shape) if data is None else data, np.uint32)
    if keys.ndim == 1 and not counts.ndim:  # most keys are derived alone, and alike in both twins
        return np.array(_derived_key(*keys.tolist(), counts.item()), np.uint32).view(Words)
    parts = (np.asarray(keys)[..., at].reshape(keys.shape[:-1] + (1,) * len(shape)) for at in (0, 1))
    given = np.broadcast_arrays(*parts, counts)
    made = np.stack(_threefry(*map(np.ravel, given)), axis=-1)
    return made.reshape(*given[0].shape, 2).view(Words)


@functools.lru_cache(maxsize=65_536)
def _derived_key(*given: int) -> tuple[int, ...]:
    return tuple(int(word[0]) for word in _threefry(*(np.array([number], np.uint32) for number in given)))


def _threefry(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the two words that each key of two words gives for a count."""
    schedule = (first, second, first ^ second ^ PARITY)
    left, right = first, second + counts
    for number in range(5):
        for bits in ROTATIONS[number % 2]:
            left = left + right
            right = (right << bits | right >> (32 - bits)) ^ left
        left = left + schedule[(number + 1) % 3]
        right = right + schedule[(number + 2) % 3] + np.uint32(number + 1)
    return left, right


ON_WORDS: dict[str, Callable[..., Any]] = {
    "random_clone": lambda keys: keys,
    "random_fold_in": _derived_keys,
    "random_split": _derived_keys,
    "transpose": lambda keys, permutation: keys.transpose(*permutation, -1),
    "broadcast_in_dim": lambda keys, shape, broadcast_dimensions, **_: np.broadcast_to(
        np.expand_dims(keys, tuple({*range(len(shape))} - {*broadcast_dimensions})), (*shape, 2), subok=True
    ),
}
"""Operations on keys, as functions of their words."""


@functools.lru_cache(maxsize=4_096)
def _lines(equation: Any, calls: tuple[Any, ...] = ()) -> tuple[Frame, ...]:
    """Returns the source lines of an equation, innermost first, preferably those of the user's files."""
    source = equation_source(equation, calls)
    return tuple(source.own or source.frames)


def _site(equation: Any, calls: tuple[Any, ...] = ()) -> str:
    """Returns the innermost source lines of an equation as text."""
    lines = _lines(equation, calls)[:FRAMES]
    return " < ".join(map(str, lines)) or (calls[0] if calls else equation).primitive.name
