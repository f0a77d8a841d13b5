"""Benign variants: random edits of a lowered module that preserve its meaning."""

import dataclasses
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from campaigns.prover.edits import attribute, commutes, copy_module, is_valid, rebuild, visible_values, walk
from campaigns.prover.slots import SLOT_EDITS
from parity.ir.jax_internals import ir, is_main, stablehlo_module
from parity.ir.mlir import attribute_items
from parity.ir.stablehlo.reader import read_program
from parity.prove.fusion import fusions

__all__ = ["EDITS", "Variant", "exchange_operands", "make_variant"]

_EFFECT_FREE = re.compile(r"stablehlo\.(?!custom_call|while|case|if|all_|collective|return|optimization)")
_SYMBOL = re.compile(r'"(?:[^"\\]|\\.)*"|@([\w.$-]+)')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """A module with the meaning of the original.

    Args:
        module: the edited module.
        edits: names of the edits.
        arguments: pairs of argument positions (original, variant).
        results: pairs of result positions.
    """

    module: Any
    edits: tuple[str, ...]
    arguments: tuple[tuple[int, int], ...]
    results: tuple[tuple[int, int], ...]


_Edit = Callable[[Any, random.Random], bool]


def _commute(module: Any, rng: random.Random) -> bool:
    """Exchanges the operands of operations that commute to the bit."""
    program = read_program(module)
    ordered = fusions(program).ordered
    kept = {op.source.operation for op in program.body.walk() if op.results.start in ordered and op.source}
    return _exchange([op for op in walk(module) if commutes(op) and op not in kept], rng)


def _exchange(ops: list[Any], rng: random.Random) -> bool:
    for op in ops:
        if rng.random() < 0.5:
            left, right = list(op.operands)
            op.operands[0], op.operands[1] = right, left
    return bool(ops)


def _dead_code(module: Any, rng: random.Random) -> bool:
    """Adds operations whose results are unused."""
    ops = [op for op in walk(module) if op.name == "stablehlo.add"]
    for op in rng.sample(ops, min(3, len(ops))):
        point = ir.InsertionPoint(op)
        for name in ("stablehlo.multiply", "stablehlo.maximum"):
            ir.Operation.create(name, results=[op.results[0].type], operands=list(op.operands), ip=point)
    return bool(ops)


def _is_known(value: Any) -> bool:
    """True if a value is computed from constants only."""
    return not isinstance(value.owner, ir.Block) and all(map(_is_known, value.owner.operands))


def _is_outermost(op: Any) -> bool:
    """True if an operation is in no loop, branch or private function."""
    return is_main(op.parent)


def _repeat(module: Any, rng: random.Random) -> bool:
    """Computes a value twice and redirects some uses to the copy: the inverse of CSE."""
    ops = [
        op
        for op in walk(module)
        if _EFFECT_FREE.match(op.name) and len(op.results) == 1 and not len(op.regions)
    ]
    for op in rng.sample(ops, min(5, len(ops))):
        copy = ir.Operation.create(
            op.name,
            results=[op.results[0].type],
            operands=list(op.operands),
            attributes=dict(attribute_items(op)),
            ip=ir.InsertionPoint(op),
        )
        for use in list(op.results[0].uses):
            if rng.random() < 0.5:
                use.owner.operation.operands[use.operand_number] = copy.results[0]
    return bool(ops)


def _outline(module: Any, rng: random.Random) -> bool:
    """Moves an operation, not one on constants, into a separate function: one more jit boundary."""
    ops = [
        op
        for op in walk(module)
        if _EFFECT_FREE.match(op.name) and not len(op.regions) and _is_outermost(op)
        if not all(map(_is_known, op.operands))
    ]
    for op in rng.sample(ops, min(3, len(ops))):
        inputs, outputs = [v.type for v in op.operands], [v.type for v in op.results]
        name = f"outlined_{rng.randrange(10**9)}"
        function = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": ir.StringAttr.get(name),
                "sym_visibility": ir.StringAttr.get("private"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs)),
            },
            regions=1,
            ip=ir.InsertionPoint(module.body),
        )
        block = function.regions[0].blocks.append(*inputs, arg_locs=[op.location] * len(inputs))
        with ir.InsertionPoint(block):
            inner = ir.Operation.create(
                op.name, results=outputs, operands=list(block.arguments), attributes=dict(attribute_items(op))
            )
            ir.Operation.create("func.return", operands=list(inner.results))
        rebuild(op, name="func.call", attributes={"callee": ir.FlatSymbolRefAttr.get(name)})
    return bool(ops)


def _rename(module: Any, rng: random.Random) -> bool:
    """Renames private functions, meshes and the module."""
    tag = rng.randrange(10**6)
    symbols = [op for op in walk(module) if op.name in ("func.func", "sdy.mesh") and not is_main(op)]
    names = {attribute(op, "sym_name").value for op in symbols}

    def replace(match: re.Match) -> str:
        name = match.group(1)
        return f"@{name}_{tag}" if name in names else match.group(0)

    for op in walk(module):
        for key, value in attribute_items(op):
            text = str(value)
            if "@" in text and (changed := _SYMBOL.sub(replace, text)) != text:
                op.attributes[key] = ir.Attribute.parse(changed)
    for op in symbols:
        op.attributes["sym_name"] = ir.StringAttr.get(f"{attribute(op, 'sym_name').value}_{tag}")
    module.operation.attributes["sym_name"] = ir.StringAttr.get(f"renamed_{tag}")
    return True


def _loops(module: Any) -> list[Any]:
    return [op for op in walk(module) if op.name == "stablehlo.while"]


def _rebuild_loop(loop: Any, order: list[int], extra: list[tuple[Any, int | None]]) -> tuple[Any, int]:
    """Rebuilds a loop with its carries in another order and more carries at the end.

    Args:
        loop: the loop.
        order: for each of the first new carries the old one.
        extra: for each further carry its initial value and the old carry whose update it gets; None for itself.

    Returns:
        The new loop and the number of old carries.
    """
    inits = [loop.operands[k] for k in order] + [value for value, _ in extra]
    types = [value.type for value in inits]
    attributes = dict(attribute_items(loop))
    made = ir.Operation.create(
        "stablehlo.while",
        results=types,
        operands=inits,
        attributes=attributes,
        regions=2,
        loc=loop.location,
        ip=ir.InsertionPoint(loop),
    )
    for old_region, new_region in zip(loop.regions, made.regions, strict=True):
        old = old_region.blocks[0]
        new = new_region.blocks.append(*types, arg_locs=[loop.location] * len(types))
        for place, k in enumerate(order):
            old.arguments[k].replace_all_uses_with(new.arguments[place])
        for op in list(old.operations):
            new.append(op)
    block = made.regions[1].blocks[0]
    last = block.operations[len(block.operations) - 1].operation
    outputs = [last.operands[k] for k in order]
    for place, (_, source) in enumerate(extra):
        outputs.append(block.arguments[len(order) + place] if source is None else last.operands[source])
    ir.Operation.create("stablehlo.return", operands=outputs, loc=last.location, ip=ir.InsertionPoint(last))
    last.erase()
    for place, k in enumerate(order):
        loop.results[k].replace_all_uses_with(made.results[place])
    loop.erase()
    return made, len(order)


def _permute_carries(module: Any, rng: random.Random) -> bool:
    """Permutes the carries of a loop."""
    loops = [loop for loop in _loops(module) if len(loop.operands) > 1]
    if loops:
        loop = rng.choice(loops)
        _rebuild_loop(loop, rng.sample(range(len(loop.operands)), len(loop.operands)), [])
    return bool(loops)


def _changes(loop: Any, slot: int) -> bool:
    block = loop.regions[1].blocks[0]
    *_, end = block.operations
    return end.operation.operands[slot] != block.arguments[slot]


def _duplicate_carry(module: Any, rng: random.Random) -> bool:
    """Carries a value that changes twice, and redirects some uses to the second."""
    loops = [
        (loop, slot) for loop in _loops(module) for slot in range(len(loop.operands)) if _changes(loop, slot)
    ]
    if not loops:
        return False
    loop, slot = rng.choice(loops)
    made, count = _rebuild_loop(loop, list(range(len(loop.operands))), [(loop.operands[slot], slot)])
    pairs = [(made.results[slot], made.results[count])]
    pairs += [(r.blocks[0].arguments[slot], r.blocks[0].arguments[count]) for r in made.regions]
    for old, new in pairs:
        for use in list(old.uses):
            if rng.random() < 0.5:
                use.owner.operation.operands[use.operand_number] = new
    return True


def _dead_carry(module: Any, rng: random.Random) -> bool:
    """Adds unused carries, one updated like another carry, one by itself."""
    loops = [loop for loop in _loops(module) if len(loop.operands)]
    if not loops:
        return False
    loop = rng.choice(loops)
    values = visible_values(loop, lambda value: True)
    slot = rng.randrange(len(loop.operands))
    same_type = [value for value in values if value.type == loop.operands[slot].type] or [loop.operands[slot]]
    extra = [(rng.choice(same_type), slot), (rng.choice(values or list(loop.operands)), None)]
    _rebuild_loop(loop, list(range(len(loop.operands))), extra)
    return True


def _capture(module: Any, rng: random.Random) -> bool:
    """Redirects uses in the body of a loop from a constant carry to its computed initial value outside."""
    changed = False
    for loop in _loops(module):
        body = loop.regions[1].blocks[0]
        last = body.operations[len(body.operations) - 1].operation
        for slot, argument in enumerate(body.arguments):
            known = _is_known(loop.operands[slot])
            if last.operands[slot] == argument and not known and rng.random() < 0.5:
                for use in list(argument.uses):
                    if use.owner.operation != last:
                        use.owner.operation.operands[use.operand_number] = loop.operands[slot]
                        changed = True
    return changed


EDITS: dict[str, _Edit] = {
    "commuted operands": _commute,
    "dead code": _dead_code,
    "repeated computation": _repeat,
    "jit boundary": _outline,
    "renamed symbols": _rename,
    "permuted carries": _permute_carries,
    "duplicated carry": _duplicate_carry,
    "dead carry": _dead_carry,
    "captured constant": _capture,
    **SLOT_EDITS,
}


def exchange_operands(program: Any, rng: random.Random) -> Any:
    """Returns a copy with the operands of some commuting operations exchanged, those on floats included."""
    original = stablehlo_module(program)
    with original.context, ir.Location.unknown():
        module = copy_module(original)
        _exchange([op for op in walk(module) if commutes(op, exactly=False)], rng)
        assert is_valid(module), "reordered operands"
    return module


def make_variant(program: Any, rng: random.Random, *, edits: int = 4, only: Sequence[str] = ()) -> Variant:
    """Makes a benign variant of a lowered program, arguments and results reordered.

    Args:
        program: a ``jax.stages.Lowered`` or an MLIR module.
        rng: selects edits and places.
        edits: how many random edits, in addition to the reordering.
        only: names of the edits to make instead, in this order, if any.
    """
    original = stablehlo_module(program)
    with original.context, ir.Location.unknown():
        module = copy_module(original)
        done = []
        for name in only or rng.choices(list(EDITS), k=edits):
            if EDITS[name](module, rng):
                done.append(name)
            assert is_valid(module), name
        arguments, results = _reorder_main(module, rng)
        assert is_valid(module), "reordered main"
    return Variant(
        module=module,
        edits=(*done, "reordered arguments and results"),
        arguments=tuple((old, new) for new, old in enumerate(arguments)),
        results=tuple((old, new) for new, old in enumerate(results)),
    )


def _reorder_main(module: Any, rng: random.Random) -> tuple[list[int], list[int]]:
    main = next(op.operation for op in module.body.operations if is_main(op))
    block = main.regions[0].blocks[0]
    count = len(block.arguments)
    order = rng.sample(range(count), count)
    for old in order:
        new = block.add_argument(block.arguments[old].type, block.arguments[old].location)
        block.arguments[old].replace_all_uses_with(new)
    for old in reversed(range(count)):
        block.erase_argument(old)
    last = block.operations[len(block.operations) - 1].operation
    outputs = rng.sample(range(len(last.operands)), len(last.operands))
    values = list(last.operands)
    for place, old in enumerate(outputs):
        last.operands[place] = values[old]
    for name, places in (("arg_attrs", order), ("res_attrs", outputs)):
        value = attribute(main, name)
        if value is not None:
            entries = list(value)
            main.attributes[name] = ir.ArrayAttr.get([_moved(entries[old], outputs) for old in places])
    kinds = [argument.type for argument in block.arguments], [value.type for value in last.operands]
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))
    return order, outputs


def _moved(entry: Any, outputs: list[int]) -> Any:
    """Renumbers the result that a donated argument shares its memory with."""
    items = {each.name: each.attr for each in entry}
    if "tf.aliasing_output" in items:
        old = ir.IntegerAttr(items["tf.aliasing_output"]).value
        items["tf.aliasing_output"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), outputs.index(old))
    return ir.DictAttr.get(items)
