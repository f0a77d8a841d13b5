"""The axis ``size``: the smallest dimensions, depth, batch, sequence and mesh with the same failure."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping

import jax
import numpy as np

from parity.bisect.axis import Question, Status
from parity.builds.build import Build
from parity.builds.meshes import MeshSpec
from parity.cases.case import Case
from parity.compare.origin.result import SearchResult

AXES = (0, 1)
MESH = -1
NAMES: Mapping[str | int, str] = {0: "batch", 1: "sequence", MESH: "mesh"}
SMALLEST = 2
"""Least number of rows or positions; a single one cannot be confused with another."""
Sizes = Mapping[str | int, int]
"""Sizes of a case: of each field of its config, of each dimension in `AXES`, and 1 for `MESH` on a single device."""


def sized(case: Case, sizes: Sizes) -> Case:
    """Returns a case in another size; ``sizes`` that it does not name stay. ValueError if the config refuses them."""
    made, own = case, case.explore.sizes
    changed = {str(name): str(size) for name, size in sizes.items() if name in own and own[str(name)] != size}
    if changed and case.explore.with_settings:
        made = case.varied(changed)
    if cuts := {axis: sizes[axis] for axis in AXES if axis in sizes}:
        sides = {
            name: _cut(getattr(made, name), cuts)
            for name in ("reference", "candidate", "float64_reference")
            if getattr(made, name)
        }
        made = dataclasses.replace(made, **sides)
    return dataclasses.replace(made, mesh=MeshSpec(), candidate_mesh=None) if MESH in sizes else made


def _cut(make: Callable[[], Build], cuts: Mapping[int, int]) -> Callable[[], Build]:
    @functools.cache
    def cut() -> Build:
        build = make()
        whole = _lengths(build)

        def inputs(seed: int) -> dict[str, np.ndarray]:
            return {name: _sliced(array, cuts, whole) for name, array in build.inputs(seed).items()}

        shapes = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in inputs(0).items()}
        words = " ".join(f"{NAMES[axis]} {size}" for axis, size in cuts.items())
        return dataclasses.replace(build, name=f"{build.name} {words}", inputs=inputs, abstract_inputs=shapes)

    return cut


def _lengths(build: Build) -> dict[int, int]:
    """Returns the size of each of the first dimensions of a batch that all its arrays share."""
    shapes = [each.shape for each in build.abstract_inputs.values() if len(each.shape)]
    found = {}
    for axis in AXES:
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


def search_sizes(question: Question) -> SearchResult:
    """Reduces one size after another while the case still fails in the same way."""
    case, runs = question.case, 0
    fields = case.explore.sizes if case.explore.with_settings else {}
    start: Sizes = {**_lengths(question.work().builds[0]), **fields}

    def fails(sizes: Sizes) -> bool:
        nonlocal runs
        runs += 1
        words = ", ".join(f"{NAMES.get(key, key)} {size}" for key, size in sizes.items())
        question.notify(f"size: run {runs}, {words}")
        return question.status_of(lambda: sized(case, sizes)) is Status.FAILS

    found = {**start, MESH: 1}
    if not case.mesh.axes or case.fixed_axes or not fails(found):
        found = start
    while smaller := next(filter(fails, _steps(found)), None):
        found = smaller
    small = sized(case, found)
    if found == start:
        return SearchResult.nothing(
            "size", "nothing can be made smaller: no smaller case fails in the same way"
        )
    if question.is_ambiguous(small):
        return SearchResult.nothing("size", "ambiguous: the smallest case fails and passes by turns")
    rows: list[tuple[str, str, str | int]] = [
        (NAMES.get(key, str(key)), str(before), found[key])
        for key, before in start.items()
        if found[key] != before
    ]
    rows += [(NAMES[MESH], str(case.mesh), "single")] if MESH in found else []
    words = ", ".join(f"{name} {after}" for name, _, after in rows)
    return SearchResult(
        axis="size",
        sentence=f"still fails alike with {words} ({runs + 2} runs)",
        head=("size", "before", "after"),
        rows=tuple((name, before, str(after)) for name, before, after in rows),
        facts={
            "sizes": {name: after for name, _, after in rows},
            "fields": {name: found[name] for name in fields},
        },
    )


def _steps(sizes: Sizes) -> Iterator[Sizes]:
    """Yields sizes with one of them reduced: to its least value, then to half."""
    for key, size in sizes.items():
        least = SMALLEST if key in AXES else 1
        for smaller in dict.fromkeys((least, size // 2)):
            if least <= smaller < size:
                yield {**sizes, key: smaller}
