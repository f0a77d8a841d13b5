"""The channel ``collectives``: transfers between devices."""

import dataclasses

from parity.cases.budgets import budgets_for
from parity.channels.budgeted import budgeted
from parity.channels.channel import Aspect, Channel, Need, Settled
from parity.channels.report_rows import collective_table
from parity.channels.structure.compare_collectives import compare_collectives
from parity.compare.evidence import Evidence
from parity.ir.hlo.collectives import read_collectives
from parity.verdicts import ChannelResult

__all__ = ["CHANNEL"]


def _applies(evidence: Evidence) -> str:
    return "" if max(mesh.size for mesh in evidence.case.meshes) > 1 else "one device, nothing to move"


def collectives(evidence: Evidence) -> ChannelResult:
    """Compares transfers between devices: kind, dtype, bytes, group, number of times."""
    devices = max(mesh.size for mesh in evidence.case.meshes)
    left, right = (read_collectives(side.optimised) for side in evidence.compiling())
    result = compare_collectives(left, right, devices)
    result = dataclasses.replace(result, tables={"collectives": collective_table(left, right)})
    moved = [sum(one.total_bytes or 0 for one in side) for side in (left, right)]
    counts = [len(side) for side in (left, right)]
    budgets = budgets_for("collectives", evidence.case.accept.budgets)
    return budgeted(result, budgets, {"bytes": (moved[0], moved[1]), "count": (counts[0], counts[1])})


CHANNEL = Channel(
    name="collectives",
    about="what moves between devices: kind, dtype, bytes, group, how often",
    column="coll",
    aspect=Aspect.STRUCTURE,
    needs=Need.COMPILE,
    judge=collectives,
    settled=Settled.COMPILED,
    applies=_applies,
)
