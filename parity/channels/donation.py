"""Donated arguments: the results of a compiled program that reuse the memory of its parameters."""

import collections
import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from parity.channels.results import compared, span
from parity.ir.hlo.hlo import Shape
from parity.ir.hlo.optimised import optimised_module
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["Alias", "Donation", "compare_donation", "read_donation"]

_ALIAS = re.compile(r"\{([\d, ]*)\}:\s*\((\d+),\s*\{([\d, ]*)\}(?:,\s*(may|must)-alias)?\)")
_BETWEEN = re.compile(r"[\s,]*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """One result that reuses a parameter's memory.

    Args:
        parameter: number of the parameter of the compiled program (arguments that jit drops have none).
        result: number of the result.
        shape: dtype and local dimensions of the parameter.
        bytes: its bytes on one device, without padding.
    """

    parameter: int
    result: int
    shape: str
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Donation:
    """The memory that a program reuses.

    Args:
        aliases: by parameter.
        parameters: number of parameters of the program.
    """

    aliases: tuple[Alias, ...]
    parameters: int

    @property
    def bytes(self) -> int:
        """Bytes reused on one device."""
        return sum(alias.bytes for alias in self.aliases)


def read_donation(compiled: Any) -> Donation:
    """Reads the input-output aliasing of a compiled program.

    Args:
        compiled: a ``jax.stages.Compiled``, HLO text or a parsed module.

    Raises:
        ValueError: the text is malformed or names a parameter that does not exist.
    """
    module = optimised_module(compiled)
    parameters = module.computations[module.entry].parameters
    text = module.attributes.get("input_output_alias", "{}")
    found, place = [], 1
    while (place := _skip(text, place)) < len(text) - 1:
        match = _ALIAS.match(text, place)
        number = int(match.group(2)) if match and len(match.group(2)) < 9 else -1
        if match is None or number not in parameters:
            raise ValueError(
                f"input_output_alias: got {text[place : place + 60]!r}, expected 'result: (parameter, ...)'"
            )
        shape = _part(parameters[number].shape, match.group(3))
        result = int((match.group(1).split(",")[0].strip() or "0")[:9])
        found.append(Alias(parameter=number, result=result, shape=str(shape), bytes=shape.bytes))
        place = match.end()
    found.sort(key=lambda alias: (alias.parameter, alias.result))
    return Donation(aliases=tuple(found), parameters=len(parameters))


def compare_donation(
    reference: Donation,
    candidate: Donation,
    alone: tuple[Sequence[str], Sequence[str]] = ((), ()),
    *,
    by_shape: bool = True,
) -> ChannelResult:
    """Compares the arrays that two programs reuse, by shape and number, regardless of order.

    Args:
        reference: donation of the reference build.
        candidate: donation of the candidate build.
        alone: shapes of arrays that only one side has, the reference's and the candidate's.
        by_shape: True if both sides keep their numbers in the same arrays; if not, equal bytes suffice.

    Returns:
        The ``donation`` channel: equal, failed with the arrays that only one side reuses, or vacuous if a program has
        no parameters.
    """
    if not reference.parameters or not candidate.parameters:
        return ChannelResult(verdict=Verdict.VACUOUS, detail="a program without parameters")
    left, right = (
        collections.Counter(_counter(alias.shape) for alias in side.aliases)
        for side in (reference, candidate)
    )
    sizes = {_counter(alias.shape): alias.bytes for side in (reference, candidate) for alias in side.aliases}
    less, more = (collections.Counter(map(_counter, shapes)) for shapes in alone)
    findings = []
    shapes = sorted(sorted(left | right), key=lambda shape: -sizes[shape])
    shared = [shape for shape in shapes if shape not in less | more]
    if not by_shape and not sum((left[shape] - right[shape]) * sizes[shape] for shape in shared):
        shapes = [shape for shape in shapes if shape not in shared]
    for shape in shapes:
        before, after = left[shape], right[shape]
        if before == after or (before - less[shape] <= after and after - more[shape] <= before):
            continue
        side = "candidate" if after < before else "reference"
        findings.append(
            Finding(
                where=f"arguments {shape}",
                reference=f"{before} reused in place",
                candidate=f"{after} reused in place",
                distance=f"{abs(before - after) * sizes[shape]:,} bytes",
                cause=f"the {side} does not donate them, or returns them in another dtype, shape or sharding",
                next_step="compare donate_argnums and the tree channel",
            )
        )
    words = (f"{len(side.aliases)} aliased, {side.bytes:,} bytes" for side in (reference, candidate))
    return compared(span(*words), findings)


def _counter(shape: str) -> str:
    """Returns a shape with unsigned scalars as signed ones, because counters may be kept in either type."""
    return re.sub(r"^u(\d+)\[\]$", r"s\1[]", shape)


def _skip(text: str, place: int) -> int:
    match = _BETWEEN.match(text, place)
    return match.end() if match else place


def _part(shape: Shape, index: str) -> Shape:
    for word in index.replace(",", " ").split():
        if len(word) > 8 or int(word) >= len(shape.parts):
            raise ValueError(
                f"input_output_alias: got index {index[:40]!r} into a parameter of shape {shape}"
            )
        shape = shape.parts[int(word)]
    return shape
