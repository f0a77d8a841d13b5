"""Fingerprints of the uses of a program's arguments, independent of names and positions."""

import hashlib
from collections.abc import Sequence
from typing import Any

from parity.ir.stablehlo.reader import read_program
from parity.prove.numbering import Table, number_program

_MAX_ROUNDS = 8


def argument_fingerprints(program: Any) -> tuple[str, ...]:
    """Returns a fingerprint of the uses of each argument of ``@main``.

    Names, argument order, carry order, calls, result order, shardings and donation play no part, so that twins with the
    same program get the same fingerprints. Arguments with equal fingerprints are used in the same way.
    """
    # Twins whose shardings, or orders of float operands, differ must still find each other's weights.
    program, table = read_program(program, ignore_shardings=True), Table()
    kinds, constants = program.body.types, program.constants
    positions = [k for k in range(len(kinds)) if k not in constants]
    arguments = {k: table.number(f"#argument {k}") for k in positions}
    numbering = number_program(program, table, arguments, reorder=True)
    reached = [(number, b"result") for number in numbering.ends()]
    reached += [(number, b"effect") for number in numbering.effects]
    colours, classes = [_digest("argument", kinds[k]) for k in positions], 0
    for _ in range(_MAX_ROUNDS):
        colours = _uses(table, reached, _cones(table, colours), len(positions))
        if len(set(colours)) == classes:
            break
        classes = len(set(colours))
    found = dict(zip(positions, colours, strict=True))
    return tuple(found.get(k, _digest(constants.get(k, ""))).hex() for k in range(len(kinds)))


def _cones(table: Table, colours: Sequence[bytes]) -> list[bytes]:
    """Returns for each number a digest of its whole computation, given those of the arguments."""
    cones: list[bytes] = list(colours)
    for word, *operands in table.nodes[len(colours) :]:
        parts = [cones[operand] for operand in operands]
        if word in table.commuting:
            parts.sort()
        cones.append(_digest(word, *parts))
    return cones


def _uses(
    table: Table, reached: Sequence[tuple[int, bytes]], cones: Sequence[bytes], arguments: int
) -> list[bytes]:
    """Returns for each argument a digest of all values that are computed from it, given the ends of the program."""
    uses: list[set[bytes]] = [set() for _ in table.nodes]
    for number, end in reached:
        uses[number].add(end)
    for number in range(len(uses) - 1, arguments - 1, -1):
        if not uses[number]:  # refinement leaves unused numbers in the table
            continue
        word, *operands = table.nodes[number]
        colour = _digest("use", cones[number], *sorted(uses[number]))
        for position, operand in enumerate(operands):
            place = "" if word in table.commuting else str(position)
            uses[operand].add(_digest(place, colour))
        uses[number] = set()
    return [_digest("use", cones[number], *sorted(uses[number])) for number in range(arguments)]


def _digest(*parts: str | bytes) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.digest()
