"""Scan outputs that are scanned inputs, in the traced program, before JAX drops dead ones."""

import collections
import dataclasses
import math
from collections.abc import Collection
from typing import Any

from parity.ir.jax_internals import scan_split
from parity.ir.jaxprs import equations, opened, origin
from parity.ir.location import SourceLocation, equation_source
from parity.verdicts import Finding

__all__ = ["PassedThrough", "compare_passed_through", "passed_through"]

LISTED = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassedThrough:
    """A scan whose body returns some of its inputs unchanged.

    Args:
        source: location of the scan.
        arrays: ``float32[4,48,80]`` and so on, stacked.
        size: bytes that stacking them takes.
    """

    source: SourceLocation
    arrays: tuple[str, ...]
    size: int


def passed_through(jaxpr: Any) -> list[PassedThrough]:
    """Finds the scans whose body returns scanned inputs, nested ones too.

    A body that returns its read-only parameters stacks them again: a second copy of all weights wherever the result is
    kept.

    Args:
        jaxpr: jaxpr of a traced program, ``jax.stages.Traced.jaxpr``.
    """
    found = []
    for equation in equations(jaxpr):
        if equation.primitive.name != "scan":
            continue
        body, (constants, carries) = opened(equation.params["jaxpr"]), scan_split(equation)
        given = set(body.invars[constants + carries :])
        kept = [
            stacked.aval
            for variable, stacked in zip(body.outvars[carries:], equation.outvars[carries:], strict=True)
            if origin(body, variable) in given
        ]
        if kept:
            size = sum(math.prod(aval.shape) * aval.dtype.itemsize for aval in kept)
            arrays = tuple(f"{aval.dtype}{list(aval.shape)}" for aval in kept)
            found.append(PassedThrough(source=equation_source(equation), arrays=arrays, size=size))
    return found


def compare_passed_through(
    reference: Any, candidate: Any, carried: Collection[str] = (), library: str = ""
) -> tuple[list[Finding], list[Finding]]:
    """Finds scans of one side that return their inputs although the other side's do not.

    Args:
        reference, candidate: jaxprs of the two traced programs.
        carried: arrays such as ``uint32[3]`` that only one side may carry.
        library: folder of library code that users cannot change; empty for none.

    Returns:
        Findings, and notes on the scans of the library.
    """
    left, right = (
        [_without(scan, carried) for scan in passed_through(jaxpr) if set(scan.arrays) - set(carried)]
        for jaxpr in (reference, candidate)
    )
    counts = [collections.Counter(array for scan in side for array in scan.arrays) for side in (left, right)]
    if counts[0] == counts[1]:
        return [], []
    heavier = right if (counts[1] - counts[0]) else left
    findings, notes = [], []
    for scan in heavier:
        theirs_to_change = not (library and scan.source.file.startswith(library))
        finding = Finding(
            where=f"traced scan at {scan.source}",
            reference=_words(left if heavier is left else [], scan),
            candidate=_words(right if heavier is right else [], scan),
            distance=f"{scan.size:,} bytes stacked anew",
            cause="the scan body returns its parameters"
            if theirs_to_change
            else "a scan of Flax's own that returns all it is given; the compiled program needs no more memory",
            next_step="return only what the body changes" if theirs_to_change else "",
        )
        (findings if theirs_to_change else notes).append(finding)
    return findings, notes


def _without(scan: PassedThrough, carried: Collection[str]) -> PassedThrough:
    arrays = tuple(array for array in scan.arrays if array not in carried)
    return dataclasses.replace(scan, arrays=arrays)


def _words(side: list[PassedThrough], scan: PassedThrough) -> str:
    if not side:
        return "returns none of its scanned inputs"
    more = f" and {len(scan.arrays) - LISTED} more" if len(scan.arrays) > LISTED else ""
    return f"returns {len(scan.arrays)} scanned inputs unchanged: {', '.join(scan.arrays[:LISTED])}{more}"
