"""Fingerprints of the uses of a program's arguments, independent of names and positions."""

import hashlib
from collections.abc import Sequence
from typing import Any

from parity.ir.stablehlo.program import StableProgram
from parity.ir.stablehlo.reader import read_program
from parity.prove.numbering import Table, number_program

_MAX_ROUNDS = 8


def argument_fingerprints(program: Any) -> tuple[str, ...]:
    """Returns a fingerprint of the uses of each argument of ``@main``.

    Names, argument order, carry order, calls, result order, shardings and donation play no part, so that twins with the
    same program get the same fingerprints. Arguments with equal fingerprints are used in the same way.

    Args:
        program: a ``jax.stages.Lowered`` or an MLIR module.
    """
    # Twins whose shardings, or orders of float operands, differ must still find each other's weights.
    return tuple(_Graph(read_program(program, ignore_shardings=True)).arguments())


class _Graph:
    """The table of one program as a graph that points from operands to users."""

    def __init__(self, program: StableProgram):
        self._program = program
        self._table = Table()
        self._positions = [k for k in range(len(program.body.parameters)) if k not in program.constants]
        arguments = {k: self._table.number(f"#argument {k}") for k in self._positions}
        numbering, self._effects = number_program(program, self._table, arguments, reorder=True)
        self._count = len(self._positions)
        self._results = [numbering.env[value] for value in program.body.outputs]
        self._reached = self._reach()

    def arguments(self) -> list[str]:
        kinds = self._program.body.types
        colours = [_digest("argument", kinds[k]) for k in self._positions]
        classes = 0
        for _ in range(_MAX_ROUNDS):
            colours = self._uses(self._cones(colours))
            if len(set(colours)) == classes:
                break
            classes = len(set(colours))
        found = dict(zip(self._positions, colours, strict=True))
        constants = self._program.constants
        return [found.get(k, _digest(constants.get(k, ""))).hex() for k in range(len(kinds))]

    def _reach(self) -> bytearray:
        """Marks the numbers that results and side effects depend on; refinement leaves unused numbers in the table."""
        reached = bytearray(len(self._table.nodes))
        for number in [*self._results, *self._effects]:
            reached[number] = 1
        for number in range(len(reached) - 1, -1, -1):
            if reached[number]:
                for operand in self._table.nodes[number][1:]:
                    reached[operand] = 1
        return reached

    def _cones(self, colours: Sequence[bytes]) -> list[bytes]:
        """Returns for each number a digest of its whole computation."""
        cones: list[bytes] = list(colours)
        nodes, commuting = self._table.nodes, self._table.commuting
        for number in range(self._count, len(nodes)):
            word, *operands = nodes[number]
            parts = [cones[operand] for operand in operands]
            if word in commuting:
                parts.sort()
            cones.append(_digest(word, *parts))
        return cones

    def _uses(self, cones: Sequence[bytes]) -> list[bytes]:
        """Returns for each argument a digest of all values that are computed from it."""
        nodes, commuting = self._table.nodes, self._table.commuting
        uses: list[set[bytes]] = [set() for _ in nodes]
        for number in self._results:
            uses[number].add(b"result")
        for number in range(len(nodes) - 1, self._count - 1, -1):
            if not self._reached[number]:
                continue
            word, *operands = nodes[number]
            colour = _digest("use", cones[number], *sorted(uses[number]))
            for position, operand in enumerate(operands):
                place = "" if word in commuting else str(position)
                uses[operand].add(_digest(place, colour))
            uses[number] = set()
        return [_digest("use", cones[number], *sorted(uses[number])) for number in range(self._count)]


def _digest(*parts: str | bytes) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.digest()
