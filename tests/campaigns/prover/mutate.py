"""The mutation engine: changes one thing in a lowered module, somewhere at random."""

import dataclasses
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from campaigns.prover.edits import (
    Edited,
    attribute,
    commutes,
    copy_module,
    is_valid,
    parse_attribute,
    rebuild,
    visible_values,
    walk,
)
from campaigns.prover.rewrites import REWRITES
from parity.ir.jax_internals import ir, stablehlo_module
from parity.ir.mlir import attribute_items
from parity.ir.stablehlo.operations import Group, facts

__all__ = ["KINDS", "Mutant", "mutants"]

_FAMILIES = (
    ("sine", "cosine", "tanh", "exponential", "negate", "abs", "sqrt", "rsqrt", "log_plus_one", "logistic"),
    ("add", "subtract", "multiply", "divide", "maximum", "minimum"),
    ("and", "or", "xor"),
    ("shift_left", "shift_right_logical", "shift_right_arithmetic"),
)
_NUMBER = re.compile(r"(?<![\w.#@\"])-?\d+(?![\w.])")
_WORDS = (
    ("DEFAULT", "HIGHEST"),
    ("true", "false"),
    ("false", "true"),
    ("SIGNED", "TOTALORDER"),
    ("CLIP_OR_FILL", "FILL"),
    ("TO_APPLY", "NONE"),
)
_PATIENCE = 40
_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """A module with one change.

    Args:
        kind: the sort of change.
        index: number of the changed operation in the original module, outer before inner.
        detail: the change as text.
        module: the changed module.
        swapped: operand positions of the operation that were exchanged.
        rewired: ``(operand position, index of the operation, its result)`` of the new value.
        renamed: names of two definitions, one of which replaces the other.
    """

    kind: str
    index: int
    detail: str
    module: Any
    swapped: tuple[int, int] | None = None
    rewired: tuple[int, int, int] | None = None
    renamed: tuple[str, str] | None = None


_Mutator = Callable[[Any, random.Random], Edited]


def _operation(op: Any, rng: random.Random) -> Edited:
    short = op.name.removeprefix("stablehlo.")
    family = next((each for each in _FAMILIES if short in each), None)
    if family is None:
        return None
    other = rng.choice([each for each in family if each != short])
    rebuild(op, name=f"stablehlo.{other}")
    return f"{short} -> {other}", {}


def _attribute(op: Any, rng: random.Random) -> Edited:
    skip = ("value", "comparison_direction", "callee", "sym_name", "function_type", "arg_attrs", "res_attrs")
    items = [
        (name, value)
        for name, value in attribute_items(op)
        if name not in skip
        and "sharding" not in name
        and name != "call_target_name"
        and name != "manual_axes"
    ]
    if not items or op.name in ("func.func", "sdy.mesh"):
        return None
    name, value = rng.choice(items)
    return _change_text(op, name, value, rng)


def _change_text(op: Any, name: str, value: Any, rng: random.Random) -> Edited:
    before = str(value)
    body, colon, _ = before.rpartition(" : ")
    places = list(_NUMBER.finditer(body if colon else before))
    words = [(old, new) for old, new in _WORDS if old in before]
    if not places and not words:
        return None
    if places and (not words or rng.random() < 0.7):
        place = rng.choice(places)
        number = str(int(place.group()) + rng.choice((-1, 1)))
        text = f"{before[: place.start()]}{number}{before[place.end() :]}"
    else:
        old, new = rng.choice(words)
        text = before.replace(old, new, 1)
    changed = parse_attribute(text)
    if changed is None or changed == value:
        return None
    op.attributes[name] = changed
    return f"{name}: {before} -> {text}", {}


def _constant(op: Any, rng: random.Random) -> Edited:
    if op.name != "stablehlo.constant":
        return None
    value = attribute(op, "value")
    text = str(value)
    body, _, kind = text.rpartition(" : ")
    if "true" in body or "false" in body:
        places = list(re.finditer("true|false", body))
        place = rng.choice(places)
        new = "false" if place.group() == "true" else "true"
    else:
        places = list(re.finditer(r"(?<![\w.+-])-?\d+(\.\d+(e[+-]\d+)?)?(?![\w.])", body))
        if not places:
            return None
        place = rng.choice(places)
        old = place.group()
        new = repr(float(old) * 1.5 + 0.25) if "." in old else str(int(old) + 1)
    changed = parse_attribute(f"{body[: place.start()]}{new}{body[place.end() :]} : {kind}")
    if changed is None or changed == value:
        return None
    op.attributes["value"] = changed
    return f"{body[:60]} -> {str(changed)[:60]}", {}


def _order(op: Any, rng: random.Random) -> Edited:
    if commutes(op) or op.name == "stablehlo.while" or _is_return(op):
        return None
    return _swap(op, rng)


def _swap(op: Any, rng: random.Random) -> Edited:
    operands = list(op.operands)
    pairs = [
        (i, j)
        for i in range(len(operands))
        for j in range(i)
        if operands[i].type == operands[j].type and operands[i] != operands[j]
    ]
    if not pairs:
        return None
    i, j = rng.choice(pairs)
    op.operands[i], op.operands[j] = operands[j], operands[i]
    return f"{op.name}: operands {j} and {i} exchanged", {"swapped": (j, i)}


def _rewire(op: Any, rng: random.Random) -> Edited:
    operands = list(op.operands)
    if not operands:
        return None
    position = rng.randrange(len(operands))
    old = operands[position]
    values = visible_values(op, lambda value: value.type == old.type and value != old)
    values = [value for value in values if not isinstance(value, ir.BlockArgument)]
    if not values:
        return None
    new = rng.choice(values)
    op.operands[position] = new
    result = ir.OpResult(new)
    facts = {"maker": result.owner, "rewired": (position, result.result_number)}
    return f"{op.name}: operand {position} rewired", facts


def _carry(op: Any, rng: random.Random) -> Edited:
    parent = op.parent
    in_body = _is_return(op) and parent is not None and parent.name == "stablehlo.while"
    return _swap(op, rng) if in_body or op.name == "stablehlo.while" else None


def _trip_count(op: Any, rng: random.Random) -> Edited:
    parent = op.parent
    if parent is None or parent.name != "stablehlo.while":
        return None
    return _constant(op, rng)


def _direction(op: Any, rng: random.Random) -> Edited:
    if op.name != "stablehlo.compare":
        return None
    before = str(attribute(op, "comparison_direction"))
    old = next(each for each in _DIRECTIONS if each in before)
    new = rng.choice([each for each in _DIRECTIONS if each != old])
    op.attributes["comparison_direction"] = ir.Attribute.parse(before.replace(old, new))
    return f"{old} -> {new}", {}


def _sharding(op: Any, rng: random.Random) -> Edited:
    names = ("sharding", "in_shardings", "out_shardings", "sdy.sharding", "mesh", "arg_attrs", "res_attrs")
    items = [
        (name, value) for name, value in attribute_items(op) if name in names and _AXIS.search(str(value))
    ]
    if not items:
        return None
    name, value = rng.choice(items)
    before = str(value)
    place = rng.choice(list(_AXIS.finditer(before)))
    swap = {"data": "model", "model": "data"}
    choices = [f'{{"{swap[place.group(1)]}"}}', "{}"] if place.group(1) else ['{"data"}', '{"model"}']
    text = f"{before[: place.start()]}{rng.choice(choices)}{before[place.end() :]}"
    if op.name == "sdy.mesh":
        text = before.replace('"data"=4, "model"=2', '"data"=2, "model"=4')
    changed = parse_attribute(text)
    if changed is None or changed == value:
        return None
    op.attributes[name] = changed
    return f"{name}: {before[:90]} -> {text[:90]}", {}


_AXIS = re.compile(r'\{(?:"(data|model)")?\}|"(?:data|model)"=\d')


def _barrier(op: Any, rng: random.Random) -> Edited:
    if op.name != "stablehlo.optimization_barrier" or len(op.operands) < 2:
        return None
    slot = rng.randrange(len(op.operands))
    value = op.operands[slot]
    if rng.random() < 0.5:
        op.results[slot].replace_all_uses_with(value)
        return f"slot {slot} goes around the barrier", {"swapped": (slot, slot)}
    made = ir.Operation.create(
        op.name, results=[value.type], operands=[value], loc=op.location, ip=ir.InsertionPoint(op)
    )
    op.results[slot].replace_all_uses_with(made.results[0])
    return f"slot {slot} gets a barrier of its own", {"swapped": (slot, slot)}


def _target(op: Any, rng: random.Random) -> Edited:
    if op.name != "stablehlo.custom_call":
        return None
    name, value = rng.choice([item for item in attribute_items(op) if str(item[1]).startswith(('"', "{"))])
    if isinstance(value, ir.StringAttr):
        op.attributes[name] = ir.StringAttr.get(value.value + "_other")
        return f"{name}: {value} -> another", {}
    return _change_text(op, name, value, rng)


def _call(op: Any, rng: random.Random) -> Edited:
    if op.name != "func.call":
        return None
    module = op.parent
    while module.name != "builtin.module":
        module = module.parent
    functions = {
        attribute(each, "sym_name").value: attribute(each, "function_type")
        for each in module.operation.regions[0].blocks[0].operations
        if each.operation.name == "func.func"
    }
    own = op.attributes["callee"].value
    others = [
        name for name, kind in functions.items() if kind == functions[own] and name not in (own, "main")
    ]
    if not others:
        return None
    other = rng.choice(others)
    op.attributes["callee"] = ir.FlatSymbolRefAttr.get(other)
    return f"call of {own} -> {other}", {"renamed": (own, other)}


def _results(op: Any, rng: random.Random) -> Edited:
    return _swap(op, rng) if op.name == "func.return" else None


KINDS: dict[str, _Mutator] = {
    "operation": _operation,
    "attribute": _attribute,
    "constant": _constant,
    "operand order": _order,
    "operand": _rewire,
    "carry wiring": _carry,
    "trip count": _trip_count,
    "comparison": _direction,
    "sharding": _sharding,
    "barrier": _barrier,
    "custom call": _target,
    "callee": _call,
    "result wiring": _results,
    **REWRITES,
}


def mutants(program: Any, rng: random.Random, count: int) -> Iterator[Mutant]:
    """Yields distinct mutants of a lowered program, kinds alternately; an exhausted kind is left out.

    Args:
        program: a ``jax.stages.Lowered`` or an MLIR module.
        rng: selects the place and the change.
        count: upper limit of mutants.
    """
    module = stablehlo_module(program)
    patience = dict.fromkeys(KINDS, _PATIENCE)
    seen: set[tuple] = set()
    while patience:
        for kind in list(patience):
            if len(seen) == count:
                return
            mutant = _mutant(module, kind, rng)
            key = _key(mutant)
            if mutant is None or key in seen:
                patience[kind] -= 1 if mutant else _PATIENCE
                if patience[kind] <= 0:
                    del patience[kind]
                continue
            seen.add(key)
            patience[kind] = _PATIENCE
            yield mutant


def _key(mutant: Mutant | None) -> tuple:
    return (mutant.kind, mutant.index, mutant.detail, mutant.swapped, mutant.rewired) if mutant else ()


def _mutant(module: Any, kind: str, rng: random.Random) -> Mutant | None:
    with module.context, ir.Location.unknown():
        changed, operations = None, []
        for index in rng.sample(range(len(walk(module))), len(walk(module))):
            if changed is None:
                changed = copy_module(module)
                operations = walk(changed)
            edit = KINDS[kind](operations[index], rng)
            if edit is None:
                continue
            if is_valid(changed):
                detail, facts = edit
                return _describe(
                    Mutant(kind=kind, index=index, detail=detail, module=changed), facts, operations
                )
            changed = None
    return None


def _describe(mutant: Mutant, facts: dict, operations: list[Any]) -> Mutant:
    if "rewired" in facts:
        facts["rewired"] = (facts["rewired"][0], operations.index(facts.pop("maker")), facts["rewired"][1])
    return dataclasses.replace(mutant, **facts)


def _is_return(op: Any) -> bool:
    return facts(op.name).group is Group.ENDS
