"""Donated arguments: the results of a compiled program that reuse the memory of its parameters."""

import collections
import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from parity.channels.results import compared, span
from parity.ir.hlo.hlo import Instruction
from parity.ir.hlo.optimised import optimised_module
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["Alias", "Donation", "compare_donation", "read_donation"]

_ALIAS = re.compile(
    r"\{[\d, ]{0,99}\}:\s*\((?P<parameter>\d{1,8}),\s*\{(?P<index>[\d, ]{0,99})\}(?:,\s*(may|must)-alias)?\)"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """One result that reuses a parameter's memory.

    Args:
        parameter: number of the parameter of the compiled program (arguments that jit drops have none).
        shape: dtype and local dimensions of the parameter.
        bytes: its bytes on one device, without padding.
    """

    parameter: int
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
    if rest := _ALIAS.sub("", text).strip("{}, \n"):
        raise ValueError(f"input_output_alias: got {rest[:60]!r}, expected 'result: (parameter, ...)'")
    found = [_alias(match, parameters) for match in _ALIAS.finditer(text)]
    found.sort(key=lambda alias: alias.parameter)
    return Donation(aliases=tuple(found), parameters=len(parameters))


def _alias(match: re.Match[str], parameters: Mapping[int, Instruction]) -> Alias:
    number, index = int(match["parameter"]), [int(word) for word in re.findall(r"\d+", match["index"])]
    try:
        shape = functools.reduce(lambda shape, part: shape.parts[part], index, parameters[number].shape)
    except LookupError as error:
        raise ValueError(f"input_output_alias: got {match[0]!r}, expected a part of a parameter") from error
    return Alias(parameter=number, shape=str(shape), bytes=shape.bytes)


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
