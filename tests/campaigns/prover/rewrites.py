"""Mutations around operations: pairings, names, symbols, slots, effects, index lists, constants."""

import random
import re
from typing import Any

from campaigns.prover.edits import Edited, attribute, parse_attribute
from campaigns.prover.modules import parse_module
from parity.ir.jax_internals import ir, is_main
from parity.ir.mlir import UnreadAttribute, attribute_items

__all__ = ["REWRITES"]

_REFERENCE = re.compile(r'"(?:[^"\\]|\\.)*"|(@(?:"(?:[^"\\]|\\.)*"|[\w.$-]+))')
_LIST = re.compile(r"(?<=\[)[\w, -]+(?=\])|(?<=: )[\d, -]+(?=>)")
_HEX = re.compile(r"0x[0-9A-F]+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_DEFINING = ("sym_name", "callee", "function_type", "arg_attrs", "res_attrs")


def _module(op: Any) -> Any:
    while op.name != "builtin.module":
        op = op.parent.operation
    return op


def _pairing(op: Any, rng: random.Random) -> Edited:
    """Exchanges two arguments of ``@main``, as a wrong pairing would."""
    if op.name != "func.func" or not is_main(op):
        return None
    arguments = list(op.regions[0].blocks[0].arguments)
    pairs = [(a, b) for a in arguments for b in arguments if a.arg_number < b.arg_number and a.type == b.type]
    if not pairs:
        return None
    first, second = rng.choice(pairs)
    uses = [list(each.uses) for each in (first, second)]
    for moved, value in zip(uses, (second, first), strict=True):
        for use in moved:
            use.owner.operation.operands[use.operand_number] = value
    places = (first.arg_number, second.arg_number)
    return f"arguments {places[0]} and {places[1]} exchanged", {"swapped": places}


def _names(op: Any, rng: random.Random) -> Edited:
    """Gives a definition the name of another of its kind, and that one its own; references stay."""
    name = attribute(op, "sym_name")
    if op.name not in ("func.func", "sdy.mesh") or name is None or is_main(op):
        return None
    kind = attribute(op, "function_type")
    others = [
        each.operation
        for each in _module(op).regions[0].blocks[0].operations
        if each.operation.name == op.name
        and each.operation != op
        and not is_main(each)
        and attribute(each.operation, "function_type") == kind
    ]
    if not others:
        return None
    other = rng.choice(others)
    right = attribute(other, "sym_name")
    op.attributes["sym_name"], other.attributes["sym_name"] = right, name
    return f"names {name} and {right} exchanged", {"renamed": (name.value, right.value)}


def _symbol(op: Any, rng: random.Random) -> Edited:
    """Replaces a reference inside an attribute by the name of another definition."""
    items = [
        (name, str(value))
        for name, value in attribute_items(op)
        if name not in _DEFINING and "@" in str(value)
    ]
    if not items:
        return None
    name, before = rng.choice(items)
    places = [match for match in _REFERENCE.finditer(before) if match.group(1)]
    known = {
        str(attribute(each.operation, "sym_name"))
        for each in _module(op).regions[0].blocks[0].operations
        if not is_main(each)
    }
    if not places:
        return None
    place = rng.choice(places)
    other = rng.choice(sorted(known))
    text = f"{before[: place.start()]}@{other}{before[place.end() :]}"
    changed = parse_attribute(text)
    if changed is None or str(changed) == before:
        return None
    op.attributes[name] = changed
    names = tuple(
        ir.FlatSymbolRefAttr(ir.Attribute.parse(each)).value for each in (place.group(1), f"@{other}")
    )
    return f"{name}: {before[:90]} -> {text[:90]}", {"renamed": names}


def _slot(op: Any, rng: random.Random) -> Edited:
    """Exchanges two entries of an attribute that has one for each slot."""
    items = [(name, value) for name, value in attribute_items(op) if isinstance(value, ir.ArrayAttr)]
    items = [(name, value) for name, value in items if len(value) > 1 and name not in _DEFINING]
    if not items:
        return None
    name, value = rng.choice(items)
    entries = list(value)
    i, j = rng.sample(range(len(entries)), 2)
    if entries[i] == entries[j]:
        return None
    entries[i], entries[j] = entries[j], entries[i]
    op.attributes[name] = ir.ArrayAttr.get(entries)
    return f"{name}: entries {i} and {j} exchanged", {}


def _indices(op: Any, rng: random.Random) -> Edited:
    """Exchanges two entries of a list inside of an attribute: dimension numbers, windows, strides, shapes."""
    items = [
        (name, str(value), match)
        for name, value in attribute_items(op)
        if name not in _DEFINING
        for match in _LIST.finditer(str(value))
        if len(set(match.group().split(", "))) > 1
    ]
    if not items:
        return None
    name, before, match = rng.choice(items)
    entries = match.group().split(", ")
    i, j = rng.sample(range(len(entries)), 2)
    entries[i], entries[j] = entries[j], entries[i]
    text = f"{before[: match.start()]}{', '.join(entries)}{before[match.end() :]}"
    changed = parse_attribute(text)
    if changed is None or str(changed) == before:
        return None
    op.attributes[name] = changed
    return f"{name}: {before[:90]} -> {text[:90]}", {}


def _flag(op: Any, rng: random.Random) -> Edited:
    """Flips a boolean attribute or drops one that only needs to be there."""
    items = [
        (name, value)
        for name, value in attribute_items(op)
        if isinstance(value, ir.BoolAttr | ir.UnitAttr) and name != "has_side_effect"
    ]
    if not items:
        return None
    name, value = rng.choice(items)
    if isinstance(value, ir.UnitAttr):
        del op.attributes[name]
        return f"{name} dropped", {}
    op.attributes[name] = ir.BoolAttr.get(not value.value)
    return f"{name}: {value} flipped", {}


def _effect(op: Any, rng: random.Random) -> Edited:
    """Drops an operation with a side effect, doubles it, or marks it as free of effects."""
    if str(attribute(op, "has_side_effect")) != "true":
        return None
    ways = ["double", "pure"]
    if len(op.results) == 1 and len(op.operands) == 1 and op.results[0].type == op.operands[0].type:
        ways.append("drop")
    way = rng.choice(ways)
    if way == "double":
        ir.Operation.create(
            op.name,
            results=[result.type for result in op.results],
            operands=list(op.operands),
            attributes=dict(attribute_items(op)),
            ip=ir.InsertionPoint(op),
        )
    elif way == "pure":
        op.attributes["has_side_effect"] = ir.BoolAttr.get(False)
    else:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
    return f"side effect: {way}", {}


def _literal(op: Any, rng: random.Random) -> Edited:
    """Changes one number of a constant of any type; complex ones only exist as text."""
    value = attribute(op, "value")
    if op.name != "stablehlo.constant" or value is None:
        return None
    before = str(value)
    body, _, kind = before.rpartition(" : ")
    places = [*_HEX.finditer(body)] or [*_NUMBER.finditer(body)]
    if not places:
        return None
    place = rng.choice(places)
    old = place.group()
    new = f"{old[:-1]}{int(old[-1], 16) ^ rng.randint(1, 15):X}" if "x" in old else _other_number(old, rng)
    text = f"{body[: place.start()]}{new}{body[place.end() :]} : {kind}"
    if isinstance(value, UnreadAttribute):
        return _reparse(op, before, text)
    changed = parse_attribute(text)
    if changed is None or str(changed) == before:
        return None
    op.attributes["value"] = changed
    return f"{before[:60]} -> {text[:60]}", {}


def _other_number(old: str, rng: random.Random) -> str:
    if "." in old:
        return f"{float(old) * rng.choice((-1.0, 0.5, 2.0, -4.0)) or 1.0:e}"
    return str(int(old) + rng.choice((-4, -3, -2, -1, 1, 2, 3, 4)))


def _reparse(op: Any, before: str, after: str) -> Edited:
    """Changes the first constant of this text in the text of the module."""
    module = _module(op)
    text = module.get_asm(enable_debug_info=False)
    assert before in text, before
    changed = parse_module(text.replace(before, after, 1), module)
    return f"{before[:60]} -> {after[:60]}", {"module": changed}


REWRITES = {
    "argument pairing": _pairing,
    "names": _names,
    "symbol": _symbol,
    "slot attribute": _slot,
    "index list": _indices,
    "flag": _flag,
    "effect": _effect,
    "literal": _literal,
}
