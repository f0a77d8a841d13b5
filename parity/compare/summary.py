"""The structure of both sides of a case in one line each: loops, collectives, memory, cycles."""

import dataclasses

from parity.compare.clock import SideError
from parity.compare.evidence import Evidence
from parity.compare.side import Side
from parity.ir.hlo.collectives import read_collectives
from parity.ir.hlo.cycles import read_cycles
from parity.ir.hlo.memory import read_memory
from parity.ir.hlo.optimised import optimised_loops
from parity.ir.stablehlo.lowered import lowered_loops

__all__ = ["SideSummary", "Summary", "summarise_case"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SideSummary:
    """One side of a case.

    Args:
        build: its name.
        flavour: ``linen`` or ``nnx``.
        numbers: by name, bytes per device; None if the backend does not report it.
        error: why there are no numbers; empty if there are.
    """

    build: str
    flavour: str
    numbers: dict[str, float | None]
    error: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Both sides of a case.

    Args:
        id: id of the case.
        backend: the backend it was compiled for.
        mesh: the mesh it was compiled for.
        sides: reference and candidate.
    """

    id: str
    backend: str
    mesh: str
    sides: tuple[SideSummary, SideSummary]

    def ratio(self, name: str) -> float | None:
        """Returns candidate over reference; None if one of them is unknown, or the reference is zero."""
        left, right = (side.numbers.get(name) for side in self.sides)
        return right / left if left and right is not None else None


def summarise_case(evidence: Evidence) -> Summary:
    """Compiles both sides, proved or not, and reads them; a side that does not compile has an error.

    Args:
        evidence: the case.
    """
    case = evidence.case
    for side in evidence.sides:
        try:
            side.begin()
        except SideError:
            continue  # reported when the side is read
    return Summary(
        id=case.id,
        backend=case.placement.backend,
        mesh=str(case.meshes[1]),
        sides=(_side(evidence.reference), _side(evidence.candidate)),
    )


def _side(side: Side) -> SideSummary:
    build, flavour = side.build.name, str(side.build.flavour)
    try:
        numbers = _numbers(side)
    except SideError as error:
        why = f"{error.phase}: {(str(error.cause).splitlines() or [''])[0]}"
        return SideSummary(build=build, flavour=flavour, numbers={}, error=why)
    return SideSummary(build=build, flavour=flavour, numbers=numbers)


def _numbers(side: Side) -> dict[str, float | None]:
    """Returns the numbers of a side's line; moved bytes count with their trips."""
    loops = lowered_loops(side.functions).count
    collectives, memory = read_collectives(side.optimised), read_memory(side.compiled).values
    moved = [None if one.times is None else one.bytes * one.times for one in collectives]
    compilation = getattr(side.compiled, "compilation", None)
    return {
        "loops_lowered": loops,
        "loops_optimised": optimised_loops(side.optimised).count,
        "collectives": len(collectives),
        "moved_bytes": None if None in moved else sum(size for size in moved if size is not None),
        "argument_bytes": memory["argument"],
        "temp_bytes": memory["temp"],
        "peak_bytes": memory["peak"],
        "cycles": read_cycles(side.optimised).total,
        "compile_seconds": compilation.seconds if compilation else None,
    }
