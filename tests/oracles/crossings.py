"""Collectives of a compiled program that join devices along a mesh axis, and whether they always run."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from parity.ir.hlo.hlo import COLLECTIVES, HloModule, Instruction
from parity.ir.hlo.optimised import optimised_module

__all__ = ["Crossing", "crossings"]

_LISTS = re.compile(r"\{([\d,]*)\}")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\]\s*(?:\(\[([\d,]+)\]T\(([\d,]+)\)\))?\s*\{([^{}]*)\}")
_AXIS = re.compile(r"'([^']+)'\s*=\s*(\d+)")
_USED = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crossing:
    """A collective across a mesh axis.

    Args:
        kind: such as ``all-reduce``.
        name: the instruction.
        shape: of its result, as HLO writes it.
        conditional: True if it is in a branch, so that a step may run without it.
    """

    kind: str
    name: str
    shape: str
    conditional: bool


def crossings(compiled: Any, axes: Sequence[tuple[str, int]], axis: str) -> tuple[Crossing, ...]:
    """Returns the collectives that join devices which differ along an axis.

    Args:
        compiled: a ``jax.stages.Compiled``, HLO text or a parsed module.
        axes: names and sizes of the mesh, in order; the last varies fastest in device order.
        axis: one of the names.

    Raises:
        ValueError: a collective states its groups in an unknown way.
    """
    module = optimised_module(compiled)
    sizes = [size for _, size in axes]
    along = np.indices(sizes)[[name for name, _ in axes].index(axis)].ravel()
    branches = _branches(module)
    found = []
    for computation, one in module.instructions():
        if one.base not in COLLECTIVES or one.phase not in ("", "start"):
            continue
        if any(len({along[device] for device in group}) > 1 for group in _groups(one, len(along))):
            found.append(
                Crossing(
                    kind=one.base,
                    name=one.name,
                    shape=str(one.shape),
                    conditional=computation.name in branches,
                )
            )
    return tuple(found)


def _branches(module: HloModule) -> set[str]:
    """Returns the names of the computations that only conditionals reach."""
    always, waiting = set(), [module.entry]
    while waiting:
        name = waiting.pop()
        if name in always:
            continue
        always.add(name)
        waiting += [
            called
            for one in module.computations[name].instructions
            if one.opcode != "conditional"
            for _, called in one.called()
        ]
    return set(module.computations) - always


def _groups(one: Instruction, devices: int) -> list[list[int]]:
    text = one.attributes.get("source_target_pairs") or one.attributes.get("replica_groups")
    if text in (None, "{}"):
        return [list(range(devices))]
    if match := _IOTA.fullmatch(text):
        shape, dims, order = (_numbers(part) for part in match.groups())
        ids = np.arange(devices).reshape(dims)
        return (ids.transpose(order) if order else ids).reshape(shape).tolist()
    # A mesh whose devices are reordered continues behind a comma: ``mesh[...], device_ids=([4,2]T(1,0)) {axes}``.
    if match := _MESH.fullmatch(text + one.attributes.get("device_ids", "")):
        mesh, dims, order, used = match.groups()
        ids = np.arange(devices).reshape(_numbers(dims) or -1).transpose(_numbers(order) or None)
        names = [name for name, *_ in _USED.findall(used)]
        if len(names) == len(set(names)):
            return _mesh_groups(mesh, used, ids)
    groups = [_numbers(group) for group in _LISTS.findall(text[1:-1])]
    if not text.startswith("{{") or not groups:
        raise ValueError(f"HLO line {one.line}: unknown groups of {one.name}: {text[:80]!r}")
    return groups


def _numbers(text: str | None) -> list[int]:
    return [int(part) for part in (text or "").split(",") if part]


def _mesh_groups(mesh: str, used: str, ids: np.ndarray) -> list[list[int]]:
    """Returns the groups along some axes of a mesh, or parts of them: ``'b':(2)3`` has stride ``size / (2 * 3)``."""
    axes = {name: int(size) for name, size in _AXIS.findall(mesh)}
    dims: list[tuple[str, int, bool]] = []
    for name, size in axes.items():
        parts = [
            (int(before), int(part)) for other, before, part in _USED.findall(used) if other == name and part
        ]
        if not parts:
            dims.append((name, size, f"'{name}'" in used))
            continue
        before, part = parts[0]
        dims += [(name, before, False), (name, part, True), (name, size // (before * part), False)]
    ids = ids.reshape([size for _, size, _ in dims])
    inside = [index for index, (_, _, joined) in enumerate(dims) if joined]
    moved = np.moveaxis(ids, inside, range(-len(inside), 0))
    width = int(np.prod([dims[index][1] for index in inside]))
    return moved.reshape(-1, width).tolist()
