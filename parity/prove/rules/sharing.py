"""Sharing of values: a compiler shares equal expressions and fuses accordingly, so both sides must share equally."""

from collections.abc import Iterator, Sequence

from parity.ir.stablehlo.program import Kind, Op, Region, StableProgram
from parity.prove.numbering import Numbering
from parity.prove.rules.numbering import RuledNumbering
from parity.prove.rules.terms import Terms

__all__ = ["shared_alike"]


def shared_alike(
    table: Terms, sides: Sequence[StableProgram], strict: Sequence[Numbering], ruled: Sequence[RuledNumbering]
) -> bool:
    """True if each value that rules equate has equally many strict numbers on both sides.

    One side may write a value in two forms, the other twice in one form. The compiler then computes it twice on one
    side and once on the other. Fusion with its readers differs, and so may the rounding.

    Args:
        table: that of the ruled numbering.
        sides: both programs.
        strict, ruled: numberings of the programs without rules, and with them.
    """
    counted = [
        _spellings(table, side, plain.env, normal)
        for side, plain, normal in zip(sides, strict, ruled, strict=True)
    ]
    return all(
        len(counted[0][value]) == len(counted[1][value]) for value in counted[0].keys() & counted[1].keys()
    )


def _spellings(
    table: Terms, side: StableProgram, plain: list[int], normal: RuledNumbering
) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for op in _computing(side.body):
        if op.results.start in normal.vanished:
            continue
        for result in op.results:
            number = normal.env[result]
            value = table.values.get(number)
            source = number if value is None else value.view.source
            found.setdefault(source, set()).add(plain[result])
    return found


def _computing(region: Region) -> Iterator[Op]:
    for op in region.ops:
        if op.live is None:
            continue
        if op.form.kind <= Kind.REGION and op.form.results:
            yield op
        for inner in op.regions:
            yield from _computing(inner)
