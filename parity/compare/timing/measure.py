"""The cases that ``parity bench`` measures, and all measurements of a case, with bounds and what is not measured."""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

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


def quantity(name: str, pair: Paired, bound: float | None = None) -> dict[str, Any]:
    """Returns a quantity as plain data: medians, ratios with their quartiles, and the values of every round."""
    under, over = pair.medians
    return {
        "unit": "bytes" if name.endswith("bytes") else "seconds",
        "under": under,
        "over": over,
        "ratio": pair.middle,
        "low": pair.low,
        "high": pair.high,
        "rounds": pair.values.tolist(),
        "bound": bound,
    }


def exceeds(row: Mapping[str, Any]) -> bool:
    """Returns True if the ratio of a quantity is above its bound in three rounds of four."""
    return row["bound"] is not None and row["low"] > row["bound"]


def _quietest(one: Steps) -> float:
    """Returns the seconds of a step, the least of three tries, because other jobs can only add time."""
    return min(one() for _ in range(3)) / one.count


def _temporary(sides: Sequence[Side]) -> dict[str, Paired]:
    found = [read_memory(side.compiled) for side in sides]
    values = [memory.values["temp"] for memory in found]
    if None in values:
        raise RuntimeError(found[values.index(None)].reasons["temp"])
    return {"temp bytes": Paired(np.array([values], float))}


def _measured(
    evidence: Evidence, entry: _Entry, rounds: int, notify: Callable[[str], None]
) -> dict[str, Any]:
    """Measures a case in every way; records why a quantity cannot be measured."""
    order = -1 if entry.swap else 1
    (under, over), states = evidence.sides[::order], (evidence.state, evidence.candidate_state)[::order]
    case = evidence.case

    def each(once: Callable[..., Mapping[str, float]], count: int) -> dict[str, Paired]:
        one, other = (functools.partial(once, *given) for given in zip((under, over), states, strict=True))
        return interleave((one, other), count)

    def steady() -> dict[str, Paired]:
        clock = CLOCKS.get(case.placement.backend, time.perf_counter)
        one, other = (functools.partial(_quietest, one) for one in steps((under, over), states, clock))
        return {"steady step": paired((one, other), MORE * rounds)}

    measures: Mapping[str, Callable[[], dict[str, Paired]]] = {
        "init": lambda: each(initialise, rounds),
        "trace, lower": lambda: each(source, MORE * rounds),
        "compile, first step": lambda: each(first_step, rounds),
        "steady step": steady,
        "temp bytes": lambda: _temporary((under, over)),
    }
    found: dict[str, Paired] = {}
    unknown: dict[str, str] = {}
    for names, measure in measures.items():
        notify(f"  {names}")
        try:
            found |= measure()
        except RuntimeError as error:
            if isinstance(error, SideError):
                raise
            unknown[names.partition(",")[0]] = str(error).splitlines()[0]
    usual = (under.build.flavour, over.build.flavour) == (Flavour.LINEN, Flavour.NNX)
    bounds = BOUNDS if usual else {}
    rows = {name: quantity(name, pair, bounds.get(name)) for name, pair in found.items()}
    return {
        "id": case.id,
        "name": entry.name or ("NNX over Linen" if usual else _named(under, over)),
        "sides": [under.build.name, over.build.name],
        "backend": case.placement.backend,
        "mesh": str(case.meshes[1]),
        "same_program": evidence.same_program,
        "quantities": rows,
        "not_measured": unknown,
        "above": [name for name, row in rows.items() if exceeds(row)],
    }


def _named(left: Side, right: Side) -> str:
    """Returns the names that differ: of the builds, or else of the meshes."""
    differing = left.build.name != right.build.name
    names = [str(side.build.name if differing else side.mesh) for side in (right, left)]
    return " over ".join(names)


def measure_each(
    subjects: Sequence[tuple[Case, _Entry]], backend: Backend, rounds: int, notify: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Yields the measurements of each case as plain data, one after the other.

    ``same_program`` is True if both sides are proved to be one: compiled code then differs only by noise.

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
