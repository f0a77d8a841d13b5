"""Collectives of a compiled program: kind, bytes, number of executions, group size."""

import dataclasses
import math
import re
from typing import Any

from parity.ir.hlo.hlo import COLLECTIVES, Computation, HloModule, Instruction
from parity.ir.hlo.optimised import Visit, optimised_module, visits
from parity.ir.location import SourceLocation

_GROUPS = re.compile(r"\{([\d,]*)\}")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[")
_MESH = re.compile(r"mesh\[([^\]]*)\](?:[^{}]*)\{([^{}]*)\}")
_AXIS = re.compile(r"'([^']+)'\s*=\s*(\d+)")
_USED = re.compile(r"'([^']+)'(?::\(\d+\)(\d+))?")
_FUSED = "all-reduce-scatter"
"""Start of the names of computations that TPU fuses from an all-reduce and a slice; together a reduce-scatter."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collective:
    """One call site of a collective; an asynchronous pair counts once.

    Args:
        kind: such as ``all-gather``; TPU's fused all-reduce and slice is a ``reduce-scatter``.
        dtype: element types moved, joined by ``+``.
        bytes: the larger of the bytes that one device sends and receives, without padding.
        group: devices per group; for a permute the number of source-target pairs; None if not stated.
        times: product of the trips around it; None if some are unknown.
        provenance: its source; compiler-made ones take that of the loop or call around them.
        parts: bytes of each operand, sorted; the compiler combines several collectives into one of many operands.
    """

    kind: str
    dtype: str
    bytes: int
    group: int | None
    times: int | None
    depth: int
    provenance: SourceLocation
    parts: tuple[int, ...] = ()

    @property
    def total_bytes(self) -> int | None:
        """Bytes over all iterations; None if the number of iterations is unknown."""
        return None if self.times is None else self.bytes * self.times


def read_collectives(compiled: Any) -> tuple[Collective, ...]:
    """Returns the collectives of a compiled program, one entry for each call site; those outside loops first."""
    module = optimised_module(compiled)
    pieces = _pieces(module)
    found = []
    for visit in sorted(visits(module), key=lambda visit: visit.depth):
        one = visit.instruction
        if (visit.computation.name, one.name) in pieces:
            continue
        if one.base in COLLECTIVES and one.phase in ("", "start"):
            found.append(_collective(module, visit, one.base, one))
        elif one.opcode == "fusion" and (called := one.called()) and called[0][1].startswith(_FUSED):
            inner = module.computations[called[0][1]].instructions
            stated = next((other for other in inner if other.base in COLLECTIVES), one)
            found.append(_collective(module, visit, "reduce-scatter", stated))
    return tuple(found)


def _pieces(module: HloModule) -> set[tuple[str, str]]:
    """Returns the collectives that are part of another: inside a fused reduce-scatter, or a later piece of one.

    The TPU compiler spreads one collective over several fusions that compute meanwhile. Each repeats the instruction
    under one channel, and only the first ends in an ``AsyncCollectiveStart``.
    """
    held: dict[str, list[Instruction]] = {}
    starting: set[str] = set()
    for computation, one in module.instructions():
        if one.base in COLLECTIVES:
            held.setdefault(computation.name, []).append(one)
        elif one.attributes.get("custom_call_target") == '"AsyncCollectiveStart"':
            starting.add(computation.name)
    begun = {one.attributes.get("channel_id") for name in starting for one in held.get(name, ())} - {None}
    return {
        (name, one.name)
        for name, collectives in held.items()
        for one in collectives
        if name.startswith(_FUSED) or (name not in starting and one.attributes.get("channel_id") in begun)
    }


def _collective(module: HloModule, visit: Visit, kind: str, stated: Instruction) -> Collective:
    one = visit.instruction
    taken = [visit.computation.by_name[name].shape for name in one.operands]
    moved = taken or [one.shape]
    given = _result_bytes(one, visit.computation)
    dtypes = sorted({leaf.element for shape in moved for leaf in shape.leaves})
    return Collective(
        kind=kind,
        dtype="+".join(dtypes),
        bytes=max(sum(shape.bytes for shape in moved), given),
        group=_group(stated, module),
        times=visit.times,
        depth=visit.depth,
        provenance=module.provenance(one, visit.caller),
        parts=tuple(sorted(shape.bytes for shape in moved)),
    )


def _result_bytes(one: Instruction, computation: Computation) -> int:
    """Returns the bytes of the results. A start gives (inputs, outputs, contexts), but an all-reduce only outputs."""
    if one.phase != "start" or one.shape.element != "tuple" or one.base == "all-reduce":
        return one.shape.bytes
    parts = one.shape.parts
    return (
        parts[1].bytes
        if len(parts) > 1
        else sum(computation.by_name[name].shape.bytes for name in one.operands)
    )


def _group(one: Instruction, module: HloModule) -> int | None:
    pairs = one.attributes.get("source_target_pairs")
    if pairs is not None:
        return len(_GROUPS.findall(pairs)) or None
    text = one.attributes.get("replica_groups")
    if text is None:
        return None
    # A mesh whose devices are reordered continues behind a comma: ``mesh[...], device_ids=(...) {axes}``.
    if match := _MESH.fullmatch(text + one.attributes.get("device_ids", "")):
        sizes = {name: int(size) for name, size in _AXIS.findall(match.group(1))}
        used = _USED.findall(match.group(2))
        if any(name not in sizes for name, _ in used):
            raise ValueError(
                f"HLO line {one.line}: replica_groups of {one.name} name an unknown axis: {text!r}"
            )
        return math.prod(int(part) if part else sizes[name] for name, part in used)
    if match := _IOTA.match(text):
        return int(match.group(1).split(",")[-1])
    if text == "{}":
        count = module.attributes.get("num_partitions", "1")
        replicas = module.attributes.get("replica_count", "1")
        return int(count) * int(replicas) if count.isdecimal() and replicas.isdecimal() else None
    groups = [len(group.split(",")) for group in _GROUPS.findall(text[1:-1]) if group]
    if not groups:
        raise ValueError(f"HLO line {one.line}: unknown replica_groups of {one.name}: {text[:80]!r}")
    return max(groups)
