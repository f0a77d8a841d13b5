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
from parity.compare.timing.phases import Steps, first_step, initialise, source, steps
from parity.compare.timing.rounds import ROUNDS, Paired, interleave, paired
from parity.ir.hlo.memory import read_memory

__all__ = ["BOUNDS", "Measured", "MeasuredCase", "Subject", "measure_each", "measured", "subjects"]

T = TypeVar("T")

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """A case to measure.

    Args:
        case: its two sides are measured.
        name: of its ratios, such as ``NNX over Linen``; empty to take it from the builds.
        swap: True for the reference over the candidate.
    """

    case: Case
    name: str = ""
    swap: bool = False


class _Entry(Table, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(description='"NNX over Linen", the name of the ratio')]
    cases: Cases
    swap: bool = False


class _Bench(Table, frozen=True, kw_only=True):
    """The keys of ``[tool.parity.bench]``; docs/benchmark.md has an example."""

    compare: tuple[_Entry, ...] = ()


def subjects(table: Mapping[str, Any], cases: Sequence[Case], selectors: Sequence[str]) -> list[Subject]:
    """Returns the cases to measure: those named, else those of ``[tool.parity.bench]``, else all.

    Raises:
        ValueError: the table has the wrong form, or a selector matches nothing.
    """
    entries = read(_Bench, table, "[tool.parity.bench]").compare
    if selectors or not entries:
        return [Subject(case=case) for case in select(cases, selectors)]
    return [
        Subject(case=case, name=entry.name, swap=entry.swap)
        for entry in entries
        for case in select(cases, entry.cases)
    ]


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredCase:
    """A case being measured.

    Args:
        evidence: evidence of the case.
        swap: True to exchange numerator and denominator.
        rounds: number of rounds of each measurement.
    """

    evidence: Evidence
    swap: bool = False
    rounds: int = ROUNDS

    def in_order(self, pair: tuple) -> tuple:
        """Returns a pair for reference and candidate as denominator and numerator."""
        return pair[::-1] if self.swap else pair

    @property
    def sides(self) -> tuple[Side, Side]:
        """Denominator and numerator."""
        return self.in_order(self.evidence.sides)

    @property
    def states(self) -> tuple[Mapping[str, np.ndarray], ...]:
        """The states of both sides, with equal numbers."""
        return self.in_order((self.evidence.state, self.evidence.candidate_state))


def _both(make: Callable[..., T], *given: tuple) -> tuple[T, T]:
    left, right = map(make, *given)
    return left, right


def _steady(timed: MeasuredCase) -> dict[str, Paired]:
    clock = CLOCKS.get(timed.evidence.case.placement.backend, time.perf_counter)
    left, right = (functools.partial(_quietest, one) for one in steps(timed.sides, timed.states, clock))
    return {"steady step": paired((left, right), MORE * timed.rounds)}


def _quietest(one: Steps) -> float:
    """Returns the seconds of a step, the least of three tries, because other jobs can only add time."""
    return min(one() for _ in range(3)) / one.count


def _temporary(timed: MeasuredCase) -> dict[str, Paired]:
    found = [read_memory(side.compiled) for side in timed.sides]
    values = [memory.values["temp"] for memory in found]
    if None in values:
        raise NotMeasuredError(found[values.index(None)].reasons["temp"])
    return {"temp bytes": Paired(np.array([values], float))}


class NotMeasuredError(ValueError):
    """A quantity cannot be measured; the message gives the reason."""


MEASURES: Mapping[tuple[str, ...], Callable[[MeasuredCase], dict[str, Paired]]] = {
    ("init",): lambda timed: interleave(_both(initialise, timed.sides), timed.rounds),
    ("trace", "lower"): lambda timed: interleave(_both(source, timed.sides), MORE * timed.rounds),
    ("compile", "first step"): lambda timed: interleave(
        _both(first_step, timed.sides, timed.states), timed.rounds
    ),
    ("steady step",): _steady,
    ("temp bytes",): _temporary,
}


def measured(
    subject: Subject, timed: MeasuredCase, notify: Callable[[str], None] = lambda words: None
) -> Measured:
    """Measures a case in every way; records why a quantity cannot be measured.

    Raises:
        SideError: a side does not build, trace, lower, compile or run.
    """
    found: dict[str, Paired] = {}
    unknown: dict[str, str] = {}
    for names, measure in MEASURES.items():
        notify(", ".join(names))
        try:
            found |= measure(timed)
        except (NotMeasuredError, RuntimeError) as error:
            if isinstance(error, SideError):
                raise
            unknown[names[0]] = str(error).splitlines()[0]
    left, right = timed.sides
    flavours = (left.build.flavour, right.build.flavour)
    usual = flavours == (Flavour.LINEN, Flavour.NNX)
    case = subject.case
    return Measured(
        id=case.id,
        name=subject.name or ("NNX over Linen" if usual else _named(left, right)),
        sides=(left.build.name, right.build.name),
        heads=("linen", "nnx") if usual else ("under", "over"),
        backend=case.placement.backend,
        mesh=str(case.meshes[1]),
        found=found,
        open=unknown,
        bounds=BOUNDS if usual else {},
        same=timed.evidence.same_program,
    )


def _named(left: Side, right: Side) -> str:
    """Returns the names that differ: of the builds, or else of the meshes."""
    differing = left.build.name != right.build.name
    names = [str(side.build.name if differing else side.mesh) for side in (right, left)]
    return " over ".join(names)


def measure_each(
    subjects: Sequence[Subject], backend: Backend, rounds: int, notify: Callable[[str], None]
) -> Iterator[Measured]:
    """Yields the measurements of each case, one after the other.

    Raises:
        ValueError: a case cannot run there.
        SideError: see `measured`.
    """
    for number, subject in enumerate(subjects, 1):
        (case,) = place([subject.case], backend)
        if case.placement.skip_reason or case.placement.too_few_devices:
            raise ValueError(f"{case.id}: {case.placement.skip_reason or case.placement.too_few_devices}")
        notify(f"[{number}/{len(subjects)}] {case.id}")
        evidence = Evidence.of(case, Session(backend=backend))
        timed = MeasuredCase(evidence=evidence, swap=subject.swap, rounds=rounds)
        yield measured(subject, timed, lambda words: notify(f"  {words}"))
