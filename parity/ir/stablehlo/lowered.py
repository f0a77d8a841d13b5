"""The loop tree of a lowered StableHLO module."""

import dataclasses
import functools
import math
import re
from typing import Any

from parity.ir.hlo.model import Leaf, Loop, LoopTree, Provenance
from parity.ir.hlo.trips import count_trips, swap
from parity.ir.jax_internals import stablehlo_module
from parity.ir.stablehlo import mlir
from parity.ir.stablehlo.mlir import Affine, Scope, Values, name_of
from parity.ir.stablehlo.operations import Group, names_of

__all__ = ["lowered_loops"]

_DIRECTION = re.compile(r"comparison_direction\s+(\w+)")
_IDLE = names_of(Group.ENDS, "constant") | {"func.func"}
_MOVES = names_of(Group.REARRANGES, Group.SAME, "bitcast_convert", "convert", "slice")
_MOVING_CALLS = frozenset({"Sharding", "annotate_device_placement"})


@dataclasses.dataclass(frozen=True, slots=True)
class _Item:
    """An operation that may hold loops: a while, a call or one with regions."""

    op: Any
    inner: tuple["_Item", ...]


def lowered_loops(lowered: Any) -> LoopTree:
    """Reads the loop tree of a lowered program, before any optimisation.

    A function called at several places counts at each of them.

    Args:
        lowered: a ``jax.stages.Lowered`` or its StableHLO module.

    Returns:
        The tree, with trip counts derived from counters, stacked outputs and passed-through inputs.

    Raises:
        ValueError: the module has no ``main`` function or a loop carries a dynamic shape.
    """
    return _Reader(stablehlo_module(lowered)).tree()


class _Reader:
    def __init__(self, module: Any):
        self.functions = {}
        for op in module.body.operations:
            if name_of(op) == "func.func":
                self.functions[op.attributes["sym_name"].value] = op
        if "main" not in self.functions:
            raise ValueError(
                f"lowered module: got functions {sorted(self.functions)}, expected one named main"
            )
        self.values = Values(self.functions)
        self.operations = 0
        self._items: dict[str, tuple[_Item, ...]] = {}

    def tree(self) -> LoopTree:
        items = self._function_items("main")
        loops = tuple(self._loops(items, None, Provenance()))
        return LoopTree(stage="lowered", loops=loops, operations=self.operations)

    def _function_items(self, name: str) -> tuple[_Item, ...]:
        if name not in self._items:
            region = self.functions[name].operation.regions[0]
            self._items[name] = self._region_items(region)
        return self._items[name]

    def _region_items(self, region: Any) -> tuple[_Item, ...]:
        found = []
        for block in region.blocks:
            for op in block.operations:
                name = name_of(op)
                self.operations += name not in _IDLE
                if name in ("func.call", "call"):
                    if self._function_items(op.attributes["callee"].value):
                        found.append(_Item(op, ()))
                elif len(op.operation.regions):
                    inner = tuple(item for part in op.operation.regions for item in self._region_items(part))
                    if inner or name == "stablehlo.while":
                        found.append(_Item(op, inner))
        return tuple(found)

    def _loops(self, items: tuple[_Item, ...], scope: Scope | None, caller: Provenance) -> list[Loop]:
        found = []
        for item in items:
            name = name_of(item.op)
            if name == "stablehlo.while":
                found.append(self._loop(item, scope, caller))
            elif name in ("func.call", "call"):
                callee = Scope(self.values.callee(item.op), item.op.operands, scope)
                inside = self._function_items(item.op.attributes["callee"].value)
                found += self._loops(inside, callee, mlir.locate(item.op, caller))
            else:
                found += self._loops(item.inner, scope, caller)
        return found

    def _loop(self, item: _Item, scope: Scope | None, caller: Provenance) -> Loop:
        place = mlir.locate(item.op, caller)
        if place.label == "rng" and caller.file:  # JAX traces it once, for its first caller in the process
            place = dataclasses.replace(caller, name=place.name)
        reader = _WhileReader(self.values, item.op, scope, place)
        kinds = [operand.type for operand in item.op.operands]
        stacked = reader.stacked()
        return Loop(
            trips=reader.trips(),
            carries=len(kinds),
            carry_bytes=sum(map(mlir.byte_size, kinds)),
            provenance=reader.provenance,
            stacked=tuple(leaf for leaf, _ in stacked),
            passthrough=tuple(leaf for leaf, passed in stacked if passed),
            inner=tuple(self._loops(item.inner, scope, caller)),
        )


class _WhileReader:
    """One while operation: its counter and what it stacks."""

    def __init__(self, values: Values, op: Any, scope: Scope | None, provenance: Provenance):
        self.values, self.op, self.scope, self.provenance = values, op, scope, provenance
        self.condition, self.body = (region.blocks[0] for region in op.operation.regions)
        self.yields = mlir.terminator(self.body).operands

    @functools.cached_property
    def counters(self) -> dict[int, int]:
        """Slots that grow by a constant in each iteration, with that constant."""
        found = {}
        for slot, value in enumerate(self.yields):
            kind = value.type
            if getattr(kind, "shape", None) != [] or "i" not in str(kind.element_type):
                continue
            step = self.values.affine(value, self.scope, self.body)
            if step is not None and (step.slot, step.factor) == (slot, 1) and step.offset:
                found[slot] = step.offset
        return found

    def trips(self) -> int | None:
        test, scope = self.values.resolve(mlir.terminator(self.condition).operands[0], self.scope)
        if hasattr(test, "arg_number") or name_of(test.owner) != "stablehlo.compare":
            return None
        match = _DIRECTION.search(str(test.owner.attributes["comparison_direction"]))
        direction = match.group(1) if match else ""
        sides = [self.values.affine(side, scope, self.condition) for side in test.owner.operands]
        left, right = (self._known(side) for side in sides)
        if left is None or right is None:
            return None
        if right.factor:
            left, right, direction = right, left, swap(direction)
        if left.factor != 1 or right.factor or left.slot not in self.counters:
            return None
        start = self.values.constant(self.op.operands[left.slot], self.scope)
        if start is None:
            return None
        return count_trips(start, self.counters[left.slot], right.offset - left.offset, direction)

    def _known(self, side: Affine | None) -> Affine | None:
        """Replaces a carry that the loop never changes by its initial constant."""
        if side is None or not side.factor or not self.values.invariant(self.op, side.slot, self.scope):
            return side
        start = self.values.constant(self.op.operands[side.slot], self.scope)
        return None if start is None else Affine(-1, 0, side.factor * start + side.offset)

    def stacked(self) -> list[tuple[Leaf, bool]]:
        """Returns what is written at a counter, and whether it is a scanned input unchanged."""
        found = []
        for slot, value in enumerate(self.yields):
            final, scope = self.values.resolve(value, self.scope)
            if hasattr(final, "arg_number") or name_of(final.owner) != "stablehlo.dynamic_update_slice":
                continue
            target, update, *starts = final.owner.operands
            target, _ = self.values.resolve(target, scope)
            index = self._index(starts, scope)
            is_own = hasattr(target, "arg_number") and target.owner == self.body and target.arg_number == slot
            if index is None or not is_own:
                continue
            writer = value.owner if not hasattr(value, "arg_number") else final.owner
            leaf = Leaf(
                shape=mlir.shape_text(value.type),
                bytes=mlir.byte_size(value.type),
                provenance=mlir.locate(writer, self.provenance),
            )
            found.append((leaf, self._is_scanned(update, scope, index)))
        return found

    def _index(self, starts: Any, scope: Scope | None) -> tuple[int, Affine] | None:
        """Returns the one dimension whose start moves with a counter, and how; None if none or several."""
        moving = None
        for axis, start in enumerate(starts):
            place = self.values.affine(start, scope, self.body)
            if place is None or (place.factor and (place.slot not in self.counters or moving)):
                return None
            if place.factor:
                moving = (axis, place)
        return moving

    def _is_scanned(self, value: Any, scope: Scope | None, index: tuple[int, Affine]) -> bool:
        """Returns whether a value is the slice of an unchanged carry at the index of the write."""
        value, scope = self.values.resolve(value, scope)
        if hasattr(value, "arg_number"):
            return False
        op = value.owner
        name = name_of(op)
        if name == "stablehlo.concatenate":
            return all(self._is_scanned(operand, scope, index) for operand in op.operands)
        if name == "stablehlo.dynamic_slice":
            start = self._index(list(op.operands)[1:], scope)
            if start is None:
                return self._is_scanned(op.operands[0], scope, index)
            return start[1] == index[1] and self._unchanged(op.operands[0], scope)
        is_move = name in _MOVES and _same_count(op)
        is_move = is_move or (
            name == "stablehlo.custom_call" and op.attributes["call_target_name"].value in _MOVING_CALLS
        )
        return is_move and self._is_scanned(op.operands[0], scope, index)

    def _unchanged(self, value: Any, scope: Scope | None) -> bool:
        value, _ = self.values.resolve(value, scope)
        if hasattr(value, "arg_number") and value.owner == self.body:
            return self.values.invariant(self.op, value.arg_number, self.scope)
        return hasattr(value, "arg_number")


def _same_count(op: Any) -> bool:
    """A slice may drop elements (an unrolled body takes its inputs apart); nothing may be repeated."""
    before, after = (math.prod(value.type.shape) for value in (op.operands[0], op.results[0]))
    return after <= before
