"""The cases that ``parity bench`` measures: those named, else those of ``[tool.parity.bench]``, else all."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from parity.cases.case import Case, select
from parity.cases.tables import Table, read

__all__ = ["Harness", "Subject", "read_harness", "subjects"]

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


class Harness(Table, frozen=True, kw_only=True):
    """The cases that the harness itself is measured on.

    Args:
        cases: selectors.
        script: a Python file that compares the same cases without it; empty for none.
    """

    cases: Cases
    script: str = ""


class _Entry(Table, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(description='"NNX over Linen", the name of the ratio')]
    cases: Cases
    swap: bool = False


class _Bench(Table, frozen=True, kw_only=True):
    """The keys of ``[tool.parity.bench]``; docs/benchmark.md has an example."""

    compare: tuple[_Entry, ...] = ()
    harness: Harness | None = None


def subjects(table: Mapping[str, Any], cases: Sequence[Case], selectors: Sequence[str]) -> list[Subject]:
    """Returns the cases to measure.

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


def read_harness(table: Mapping[str, Any]) -> Harness | None:
    """Returns the cases that the harness is measured on; None if the table has none.

    Raises:
        ValueError: the table has the wrong form.
    """
    return read(_Bench, table, "[tool.parity.bench]").harness
