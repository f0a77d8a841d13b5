"""The axis ``size``: the smallest dimensions, depth, batch, sequence and mesh with the same failure."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from parity.bisect.axis import Question, SearchResult, Status
from parity.builds.build import Build
from parity.builds.meshes import MeshSpec
from parity.cases.case import Case
from parity.compare.clock import SideError
from parity.ir.jaxprs import bodies, opened

__all__ = ["Sizes", "search_sizes", "sized"]

AXES = ("batch", "sequence")
"""The names of the first two dimensions of a batch."""
SMALLEST = 2
"""Least number of rows or positions; a single one cannot be confused with another."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of a case.

    Args:
        fields: sizes of the config.
        cuts: ``(dimension, size)`` of the batch's first two dimensions, if they are cut.
        single: True if it runs on one device instead of its mesh.
    """

    fields: tuple[tuple[str, int], ...] = ()
    cuts: tuple[tuple[int, int], ...] = ()
    single: bool = False


def sized(case: Case, sizes: Sizes) -> Case:
    """Returns a case in another size.

    Args:
        case: any; it needs ``with_settings`` if fields change.
        sizes: sizes of the result.

    Raises:
        ValueError: the sizes are invalid for the config.
    """
    made = case
    changed = {name: str(size) for name, size in sizes.fields if case.explore.sizes[name] != size}
    if changed and case.explore.with_settings:
        varied = case.explore.with_settings(changed)
        made = dataclasses.replace(
            case,
            reference=varied.reference,
            candidate=varied.candidate,
            float64_reference=case.float64_reference and varied.float64_reference,
        )
    if sizes.cuts:
        sides = {
            name: _cut(getattr(made, name), dict(sizes.cuts))
            for name in ("reference", "candidate", "float64_reference")
            if getattr(made, name)
        }
        made = dataclasses.replace(made, **sides)
    return dataclasses.replace(made, mesh=MeshSpec(), candidate_mesh=None) if sizes.single else made


def _cut(make: Callable[[], Build], cuts: Mapping[int, int]) -> Callable[[], Build]:
    @functools.cache
    def cut() -> Build:
        build = make()
        whole = _lengths(build)

        def inputs(seed: int) -> dict[str, np.ndarray]:
            return {name: _sliced(array, cuts, whole) for name, array in build.inputs(seed).items()}

        shapes = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in inputs(0).items()}
        words = " ".join(f"{AXES[axis]} {size}" for axis, size in cuts.items())
        return dataclasses.replace(build, name=f"{build.name} {words}", inputs=inputs, abstract_inputs=shapes)

    return cut


def _lengths(build: Build) -> dict[int, int]:
    """Returns the size of each of the first dimensions of a batch that all its arrays share."""
    shapes = [each.shape for each in build.abstract_inputs.values() if len(each.shape)]
    found = {}
    for axis in range(len(AXES)):
        sizes = {shape[axis] for shape in shapes if len(shape) > axis}
        if len(sizes) == 1 and all(len(shape) >= 2 for shape in shapes):
            found[axis] = sizes.pop()
    return found


def _sliced(array: np.ndarray, cuts: Mapping[int, int], whole: Mapping[int, int]) -> np.ndarray:
    index = tuple(
        slice(0, cuts[axis]) if axis in cuts and length == whole.get(axis) else slice(None)
        for axis, length in enumerate(array.shape)
    )
    return np.ascontiguousarray(array[index]) if array.ndim >= 2 else array


def entries_made(jaxpr: Any) -> int:
    """Returns the number of elements that a program computes, multiply-adds of dots counted individually.

    It is a rough measure of work.

    Args:
        jaxpr: jaxpr of a traced program.
    """
    total = 0
    for equation in opened(jaxpr).eqns:
        inner = sum(entries_made(body) for body in bodies(equation))
        if inner:
            total += inner * equation.params.get("length", 1)
            continue
        made = sum(math.prod(getattr(out.aval, "shape", ())) for out in equation.outvars)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            made *= math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        total += made
    return total


def search_sizes(question: Question) -> SearchResult:
    """Reduces one size after another while the case still fails in the same way."""
    case, runs = question.case, 0
    start = Sizes(
        fields=tuple(case.explore.sizes.items()) if case.explore.with_settings else (),
        cuts=tuple(_lengths(question.work().builds[0]).items()),
    )

    def fails(sizes: Sizes) -> bool:
        nonlocal runs
        runs += 1
        question.notify(f"size: run {runs}, {_words(sizes)}")
        return question.status_of(lambda: sized(case, sizes)) is Status.FAILS

    found = _shrunk(start, fails, can_leave=bool(case.mesh.axes) and not case.fixed_axes)
    small = sized(case, found)
    if found == start:
        return SearchResult.nothing(
            "size", "nothing can be made smaller: no smaller case fails in the same way"
        )
    if question.is_ambiguous(small):
        return SearchResult.nothing("size", "ambiguous: the smallest case fails and passes by turns")
    work = [_work(each, question) for each in (case, small)]
    ratio = work[0] / work[1] if all(work) else 1.0
    changed = [
        (name, before, after) for name, before, after in _compared(start, found, case) if before != after
    ]
    words = ", ".join(f"{name} {after}" for name, _, after in changed)
    return SearchResult(
        axis="size",
        sentence=f"still fails alike with {words}: {ratio:.3g} times less work ({runs + 2} runs)",
        head=("size", "before", "after"),
        rows=tuple((name, str(before), str(after)) for name, before, after in changed),
        facts={
            "sizes": {name: after for name, _, after in changed},
            "fields": dict(found.fields),
            "work": work,
            "ratio": ratio,
        },
    )


def _shrunk(sizes: Sizes, fails: Any, *, can_leave: bool) -> Sizes:
    """Returns sizes of which none can be reduced alone, neither to its least value nor by half."""
    if can_leave and fails(alone := dataclasses.replace(sizes, single=True)):
        sizes = alone
    while smaller := next(filter(fails, _steps(sizes)), None):
        sizes = smaller
    return sizes


def _steps(sizes: Sizes) -> Iterator[Sizes]:
    """Yields sizes with one of them reduced: to its least value, then to half."""
    for kind in ("cuts", "fields"):
        least = SMALLEST if kind == "cuts" else 1
        for position, (name, size) in enumerate(getattr(sizes, kind)):
            for smaller in dict.fromkeys((least, size // 2)):
                if least <= smaller < size:
                    entries = list(getattr(sizes, kind))
                    entries[position] = (name, smaller)
                    yield dataclasses.replace(sizes, **{kind: tuple(entries)})


def _compared(start: Sizes, found: Sizes, case: Case) -> Iterator[tuple[str, Any, Any]]:
    for (name, before), (_, after) in zip(_named(start), _named(found), strict=True):
        yield name, before, after
    yield "mesh", str(case.mesh), "single" if found.single else str(case.mesh)


def _named(sizes: Sizes) -> list[tuple[str, int]]:
    return [*sizes.fields, *((AXES[axis], size) for axis, size in sizes.cuts)]


def _words(sizes: Sizes) -> str:
    return ", ".join([f"{name} {size}" for name, size in _named(sizes)] + ["one device"] * sizes.single)


def _work(case: Case, question: Question) -> int:
    try:
        return entries_made(question.work(case).reference.traced.jaxpr)
    except SideError:
        return 0
