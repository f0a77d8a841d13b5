"""The cases that ``parity bench`` measures, and all measurements of a case, with bounds and what is not measured."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from parity.builds.build import Flavour
from parity.cases.case import Case, select
from parity.cases.tables import Table, read
from parity.compare.backends.backend import Backend
from parity.compare.clock import SideError
from parity.compare.evidence import Evidence
from parity.compare.placement import place
from parity.compare.session import Session
from parity.compare.side import Side
from parity.compare.timing.rounds import (
    Paired,
    Steps,
    first_step,
    initialise,
    interleave,
    paired,
    source,
    steps,
)
from parity.ir.hlo.memory import read_memory

__all__ = ["BOUNDS", "Measured", "measure_each", "subjects"]

T = TypeVar("T")
Sides = tuple[Side, Side]
Measures = Mapping[tuple[str, ...], Callable[[], dict[str, Paired]]]
"""Functions that measure quantities, by the names of these."""

BOUNDS: Mapping[str, float] = {
    "trace": 1.10,
    "lower": 1.10,
    "compile": 1.10,
    "steady step": 1.02,
    "temp bytes": 1.00,
}
"""Upper bounds for NNX over Linen; other comparisons have none."""
MORE = 3
"""Factor by which cheap quantities are measured more often."""
CLOCKS: Mapping[str, Callable[[], float]] = {"cpu": time.process_time}
"""Clocks for steps, by backend: processor time on simulated devices; wall time for the others."""
Cases = Annotated[tuple[str, ...], msgspec.Meta(description='selectors such as ["llama2-*"]')]


class _Entry(Table, frozen=True, kw_only=True):
    """Cases to compare; with ``swap`` the reference over the candidate."""

    name: Annotated[str, msgspec.Meta(description='"NNX over Linen", the name of the ratio')]
    cases: Cases
    swap: bool = False


class _Bench(Table, frozen=True, kw_only=True):
    """The keys of ``[tool.parity.bench]``; docs/benchmark.md has an example."""

    compare: tuple[_Entry, ...] = ()


BY_BUILDS = _Entry(name="", cases=())
"""The entry of cases that no table names: their builds give the name of the ratio."""


def subjects(
    table: Mapping[str, Any], cases: Sequence[Case], selectors: Sequence[str]
) -> list[tuple[Case, _Entry]]:
    """Returns the cases to measure, with their entries: those named, else those of ``[tool.parity.bench]``, else all.

    Raises:
        ValueError: the table has the wrong form, or a selector matches nothing.
    """
    entries = read(_Bench, table, "[tool.parity.bench]").compare
    if selectors or not entries:
        return [(case, BY_BUILDS) for case in select(cases, selectors)]
    return [(case, entry) for entry in entries for case in select(cases, entry.cases)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """The measurements of a case.

    Args:
        id: id of the case.
        name: name of the ratios.
        sides: the builds: denominator and numerator.
        heads: their names in a table.
        backend, mesh: where it ran.
        found: by quantity, in the order of measuring; seconds, or bytes if the name says bytes.
        open: why a quantity could not be measured.
        bounds: upper bounds of its ratios.
        same: True if both sides are proved to be one program: compiled code then differs only by noise.
    """

    id: str
    name: str
    sides: tuple[str, str]
    heads: tuple[str, str] = ("under", "over")
    backend: str
    mesh: str
    found: Mapping[str, Paired]
    open: Mapping[str, str]
    bounds: Mapping[str, float]
    same: bool = False

    @property
    def above(self) -> dict[str, float]:
        """The quantities above their bound in three rounds of four, each with its median ratio."""
        return {
            name: self.found[name].middle
            for name, bound in self.bounds.items()
            if name in self.found and self.found[name].low > bound
        }


def _both(make: Callable[..., T], *given: tuple) -> tuple[T, T]:
    left, right = map(make, *given)
    return left, right


def _quietest(one: Steps) -> float:
    """Returns the seconds of a step, the least of three tries, because other jobs can only add time."""
    return min(one() for _ in range(3)) / one.count


def _temporary(sides: Sides) -> dict[str, Paired]:
    found = [read_memory(side.compiled) for side in sides]
    values = [memory.values["temp"] for memory in found]
    if None in values:
        raise RuntimeError(found[values.index(None)].reasons["temp"])
    return {"temp bytes": Paired(np.array([values], float))}


def _in_order(pair: tuple[T, T], swap: bool) -> tuple[T, T]:
    """Returns a pair for reference and candidate as denominator and numerator."""
    return (pair[1], pair[0]) if swap else pair


def _measures(evidence: Evidence, swap: bool, rounds: int) -> Measures:
    """Returns functions that measure quantities of both sides."""
    sides = _in_order(evidence.sides, swap)

    def states() -> tuple[Mapping[str, np.ndarray], ...]:
        return _in_order((evidence.state, evidence.candidate_state), swap)

    def steady() -> dict[str, Paired]:
        clock = CLOCKS.get(evidence.case.placement.backend, time.perf_counter)
        left, right = (functools.partial(_quietest, one) for one in steps(sides, states(), clock))
        return {"steady step": paired((left, right), MORE * rounds)}

    return {
        ("init",): lambda: interleave(_both(initialise, sides), rounds),
        ("trace", "lower"): lambda: interleave(_both(source, sides), MORE * rounds),
        ("compile", "first step"): lambda: interleave(_both(first_step, sides, states()), rounds),
        ("steady step",): steady,
        ("temp bytes",): lambda: _temporary(sides),
    }


def _measured(evidence: Evidence, entry: _Entry, rounds: int, notify: Callable[[str], None]) -> Measured:
    """Measures a case in every way; records why a quantity cannot be measured."""
    found: dict[str, Paired] = {}
    unknown: dict[str, str] = {}
    left, right = _in_order(evidence.sides, entry.swap)
    for names, measure in _measures(evidence, entry.swap, rounds).items():
        notify(f"  {', '.join(names)}")
        try:
            found |= measure()
        except RuntimeError as error:
            if isinstance(error, SideError):
                raise
            unknown[names[0]] = str(error).splitlines()[0]
    usual = (left.build.flavour, right.build.flavour) == (Flavour.LINEN, Flavour.NNX)
    case = evidence.case
    return Measured(
        id=case.id,
        name=entry.name or ("NNX over Linen" if usual else _named(left, right)),
        sides=(left.build.name, right.build.name),
        heads=("linen", "nnx") if usual else ("under", "over"),
        backend=case.placement.backend,
        mesh=str(case.meshes[1]),
        found=found,
        open=unknown,
        bounds=BOUNDS if usual else {},
        same=evidence.same_program,
    )


def _named(left: Side, right: Side) -> str:
    """Returns the names that differ: of the builds, or else of the meshes."""
    differing = left.build.name != right.build.name
    names = [str(side.build.name if differing else side.mesh) for side in (right, left)]
    return " over ".join(names)


def measure_each(
    subjects: Sequence[tuple[Case, _Entry]], backend: Backend, rounds: int, notify: Callable[[str], None]
) -> Iterator[Measured]:
    """Yields the measurements of each case, one after the other.

    Raises:
        ValueError: a case cannot run there.
        SideError: a side does not build, trace, lower, compile or run.
    """
    for number, (given, entry) in enumerate(subjects, 1):
        (case,) = place([given], backend)
        if case.placement.skip_reason or case.placement.too_few_devices:
            raise ValueError(f"{case.id}: {case.placement.skip_reason or case.placement.too_few_devices}")
        notify(f"[{number}/{len(subjects)}] {case.id}")
        yield _measured(Evidence.of(case, Session(backend=backend)), entry, rounds, notify)
