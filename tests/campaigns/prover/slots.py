"""Benign edits of order: of independent operations, of the slots of barriers and branches, of dead code."""

import itertools
import random
from typing import Any

from campaigns.prover.edits import walk
from parity.ir.jax_internals import ir
from parity.ir.mlir import attribute_items

__all__ = ["SLOT_EDITS"]


def _blocks(module: Any) -> list[Any]:
    return [block for op in walk(module) for region in op.regions for block in region.blocks]


def _shuffle(module: Any, rng: random.Random) -> bool:
    """Reorders the operations of each block; all operands are still defined before use."""
    for block in _blocks(module):
        *rest, last = [op.operation for op in block.operations]
        waiting = {op: _makers(op, block) for op in rest}
        fixed = [op for op in rest if _has_effect(op)]
        for before, after in itertools.pairwise(fixed):
            waiting[after].add(before)
        while waiting:
            ready = [op for op, makers in waiting.items() if not makers & set(waiting)]
            op = rng.choice(ready)
            del waiting[op]
            op.move_before(last)
    return True


def _makers(op: Any, block: Any) -> set[Any]:
    """Returns the operations of the block whose results an operation, or its regions, read."""
    found, work = set(), [op]
    while work:
        inner = work.pop()
        work += [
            each.operation for region in inner.regions for block in region.blocks for each in block.operations
        ]
        for value in inner.operands:
            if not isinstance(value, ir.BlockArgument) and value.owner.operation.block == block:
                found.add(value.owner.operation)
    return found - {op}


def _has_effect(op: Any) -> bool:
    own = op.name == "stablehlo.custom_call" or not len(op.results)
    return own or any(
        _has_effect(each.operation) for r in op.regions for b in r.blocks for each in b.operations
    )


def _rebuilt(op: Any, operands: list[Any], order: list[int], extra: int = 0) -> None:
    """Rebuilds an operation whose new result ``place`` is the old one ``order[place]``; ``extra`` more follow."""
    types = [op.results[k].type for k in order] + [value.type for value in operands[len(operands) - extra :]]
    made = ir.Operation.create(
        op.name,
        results=types,
        operands=operands,
        attributes=dict(attribute_items(op)),
        regions=len(op.regions),
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    for old, new in zip(op.regions, made.regions, strict=True):
        block = new.blocks.append()
        for each in list(old.blocks[0].operations):
            block.append(each)
        last = block.operations[len(block.operations) - 1].operation
        values = list(last.operands)
        for place, k in enumerate(order):
            last.operands[place] = values[k]
    for place, k in enumerate(order):
        op.results[k].replace_all_uses_with(made.results[place])
    op.erase()


def _permute_barriers(module: Any, rng: random.Random) -> bool:
    """Permutes the slots of barriers and adds an unused one."""
    found = [op for op in walk(module) if op.name == "stablehlo.optimization_barrier"]
    for op in found:
        order = rng.sample(range(len(op.operands)), len(op.operands))
        _rebuilt(op, [op.operands[k] for k in order] + [op.operands[0]], order, extra=1)
    return bool(found)


def _permute_branches(module: Any, rng: random.Random) -> bool:
    """Permutes the results of branches."""
    found = [op for op in walk(module) if op.name in ("stablehlo.case", "stablehlo.if") and len(op.results)]
    for op in reversed(found):  # inner ones first
        _rebuilt(op, list(op.operands), rng.sample(range(len(op.results)), len(op.results)))
    return bool(found)


SLOT_EDITS = {
    "operations in another order": _shuffle,
    "permuted and dead barrier slots": _permute_barriers,
    "permuted branch results": _permute_branches,
}
