"""Evaluates what the keys of a traced program depend on, loops step by step, and records every draw."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from parity.ir.jax_internals import equation_frames, equation_scope, scan_split
from parity.ir.stablehlo.provenance import short_path
from parity.values.rng.demand import CALLS, DRAWS, Demand, bodies, draws_within, opened

__all__ = ["Draw", "Recorder", "Turn"]

FRAMES = 3
REMAT = frozenset({"remat2", "checkpoint"})
LAYOUT_ONLY = frozenset({"sharding_constraint", "reshard", "mesh_cast", "optimization_barrier"})


@dataclasses.dataclass(frozen=True)
class Turn:
    """One turn of a loop.

    Args:
        loop: source of the loop.
        index: number of the turn, from 0.
    """

    loop: str
    index: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draw:
    """One use of one key.

    Args:
        key: its words.
        shape, bits: what is drawn, the width of an entry in bits.
        site: source lines, innermost first.
        equation: position in the program; the same for all turns of a loop.
        turns: the loops around it, outermost first.
        lane: number of the key where several are drawn from at once, as under ``vmap``.
        step: number of the step, from 1.
        again: whether the backward pass repeats a draw of the forward one.
    """

    key: tuple[int, ...]
    shape: tuple[int, ...]
    bits: int
    site: str
    equation: tuple[int, ...]
    turns: tuple[Turn, ...] = ()
    lane: int = 0
    step: int = 1
    again: bool = False

    @property
    def use(self) -> tuple:
        """What makes two draws the same numbers."""
        return self.key, self.shape, self.bits


@dataclasses.dataclass(frozen=True)
class _Around:
    """Where an equation stands: what it inherits from the ones around it."""

    place: tuple[int, ...] = ()
    turns: tuple[Turn, ...] = ()
    site: str = ""
    again: bool = False


class Recorder:
    """Evaluates one step of a program as far as its draws demand, and keeps them.

    Nothing is drawn unless a key depends on it, and nothing needs the devices the program is for: shardings
    are left out.

    Args:
        demand: what must be computed.
        step: number of the step.

    Attributes:
        draws: in the order of execution.
        unseen: sites of what draws where keys are not followed, such as ``shard_map``.
    """

    def __init__(self, demand: Demand, step: int = 1):
        self._demand, self._step = demand, step
        self.draws: list[Draw] = []
        self.unseen: list[str] = []

    def run(self, jaxpr: Any, arguments: Sequence[Any]) -> list[Any]:
        """Returns the outputs that were demanded, None for the others.

        Args:
            jaxpr: the closed program.
            arguments: flat; None where not demanded.
        """
        return self._body(jaxpr, arguments, _Around())

    def _body(self, closed: Any, arguments: Sequence[Any], around: _Around) -> list[Any]:
        jaxpr = opened(closed)
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=False))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(variable: Any) -> Any:
            return variable.val if isinstance(variable, core.Literal) else values.get(variable)

        for index, equation in enumerate(jaxpr.eqns):
            place = (*around.place, index)
            if place not in self._demand.kept:
                continue
            here = self._around(equation, dataclasses.replace(around, place=place))
            outputs = self._equation(equation, [read(variable) for variable in equation.invars], here)
            values.update(zip(equation.outvars, outputs, strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    def _around(self, equation: Any, here: _Around) -> _Around:
        again = here.again or "transpose(" in equation_scope(equation)
        return dataclasses.replace(
            here, site=here.site or _site(equation) or equation.primitive.name, again=again
        )

    def _equation(self, equation: Any, inputs: list[Any], here: _Around) -> Sequence[Any]:
        name, wanted = equation.primitive.name, self._demand.kept[here.place]
        if name in DRAWS:
            self._record(equation, inputs[0], here)
            return _bound(equation, inputs) if wanted else [None]
        inner = bodies(equation)
        if name == "scan":
            return self._scan(equation, inputs, here)
        if name == "cond":
            chosen = min(max(int(inputs[0]), 0), len(inner) - 1)
            around = dataclasses.replace(here, place=(*here.place, chosen))
            return self._body(inner[chosen], inputs[1:], around)
        if name == "while":
            return self._while(equation, inputs, here)
        if name in CALLS and len(inner) == 1:
            around = dataclasses.replace(here, site="") if name in REMAT else here
            return self._body(inner[0], inputs, around)
        if name in LAYOUT_ONLY:
            return inputs
        if any(draws_within(opened(body)) for body in inner):
            self.unseen.append(here.site)
        return _bound(equation, inputs) if wanted else [None] * len(equation.outvars)

    def _record(self, equation: Any, keys: Any, here: _Around) -> None:
        keys = jax.random.key_data(keys) if jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) else keys
        params = equation.params
        words = np.asarray(keys)
        words = words.reshape(-1, words.shape[-1])
        self.draws += [
            Draw(
                key=tuple(map(int, key)),
                shape=tuple(params.get("shape", equation.outvars[0].aval.shape)),
                bits=params.get("bit_width", 32),
                site=here.site,
                equation=here.place,
                turns=here.turns,
                lane=lane,
                step=self._step,
                again=here.again,
            )
            for lane, key in enumerate(words)
        ]

    def _scan(self, equation: Any, inputs: list[Any], here: _Around) -> list[Any]:
        (body,), (constants, carries) = bodies(equation), scan_split(equation)
        length, loop = equation.params["length"], _site(equation)
        fixed, carry, scanned = (
            inputs[:constants],
            inputs[constants : constants + carries],
            inputs[constants + carries :],
        )
        rows: list[list[Any]] = [[] for _ in equation.outvars[carries:]]
        turns = reversed(range(length)) if equation.params["reverse"] else range(length)
        for number, index in enumerate(turns):
            around = dataclasses.replace(here, turns=(*here.turns, Turn(loop, number)), site="")
            here_now = [None if array is None else array[index] for array in scanned]
            outputs = self._body(body, [*fixed, *carry, *here_now], around)
            carry = outputs[:carries]
            for row, value in zip(rows, outputs[carries:], strict=True):
                row.append(value)
        if equation.params["reverse"]:
            rows = [row[::-1] for row in rows]
        return [*carry, *(_stacked(row) for row in rows)]

    def _while(self, equation: Any, inputs: list[Any], here: _Around) -> list[Any]:
        condition, body = equation.params["cond_jaxpr"], equation.params["body_jaxpr"]
        order = [opened(one) for one in bodies(equation)]
        places = [(*here.place, order.index(opened(one))) for one in (condition, body)]
        first, second = equation.params["cond_nconsts"], equation.params["body_nconsts"]
        fixed = inputs[:first], inputs[first : first + second]
        carry, number, loop = inputs[first + second :], 0, _site(equation)
        while True:
            around = dataclasses.replace(here, turns=(*here.turns, Turn(loop, number)), site="")
            asked = dataclasses.replace(around, place=places[0])
            if not bool(self._body(condition, [*fixed[0], *carry], asked)[0]):
                return carry
            carry = self._body(body, [*fixed[1], *carry], dataclasses.replace(around, place=places[1]))
            number += 1


def _stacked(values: list[Any]) -> Any:
    return None if not values or values[0] is None else jnp.stack(values)


def _bound(equation: Any, inputs: list[Any]) -> list[Any]:
    """Runs one equation by itself, wherever it was meant to lie."""
    params = {
        name: None if isinstance(value, jax.sharding.Sharding) else value
        for name, value in equation.params.items()
    }
    outputs = equation.primitive.bind(*inputs, **equation.primitive.get_bind_params(params))
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def _site(equation: Any) -> str:
    frames = equation_frames(equation)
    own = [frame for frame in frames if "site-packages" not in frame[0]] or frames
    return " < ".join(f"{short_path(file)}:{line} in {function}" for file, line, function in own[:FRAMES])
