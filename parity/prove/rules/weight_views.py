"""Arrays with different layouts: several arrays of one side, moved and joined, are one array of the other."""

import dataclasses
import math
from collections.abc import Sequence

from parity.builds.weights.transforms import Step
from parity.ir.jax_internals import ir, is_main
from parity.ir.stablehlo.program import StableProgram
from parity.prove.frontier import Frontier
from parity.prove.numbering import Numbering, Table
from parity.prove.rules.registry import MOVED, NORMAL_FORMS, RewriteRule
from parity.prove.rules.terms import Application, Terms, Value
from parity.prove.rules.types import Array, is_narrow, parse_array


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightView:
    """One group of arrays: parts on one side are a whole on the other.

    Args:
        name: for messages.
        side: the side with the parts, 0 for the reference.
        parts: positions in ``@main`` on that side; None for a part that the program does not read.
        shapes: shapes of the parts.
        whole: the position on the other side; None if that side does not read it.
        steps: movements that make the whole from the parts.
    """

    name: str
    side: int
    parts: tuple[int | None, ...]
    shapes: tuple[tuple[int, ...], ...]
    whole: int | None
    steps: tuple[Step, ...]

    def positions(self, side: int) -> tuple[int, ...]:
        """Returns the positions on a side."""
        found = self.parts if side == self.side else (self.whole,)
        return tuple(position for position in found if position is not None)


def given(
    table: Table, sides: Sequence[StableProgram], moves: Sequence[WeightView]
) -> tuple[dict[int, int], dict[int, int]]:
    """Returns the numbers of moved arguments by position; both sides get equal numbers if the rules allow it."""
    found: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for place, move in enumerate(moves):
        for side in (0, 1):
            for position in move.positions(side):
                found[side][position] = table.number(f"#moved {place} {position} of side {side}")
        if not isinstance(table, Terms):
            continue
        types = [sides[move.side].body.types[position] for position in move.positions(move.side)]
        arrays = [parse_array(text) for text in types]
        if not arrays or None in arrays:
            continue
        element = arrays[0].element  # pyright: ignore[reportOptionalMemberAccess]
        parts = [
            table.value(
                table.number(f"#part {place} {index}") if position is None else found[move.side][position],
                Array(shape, element),
            )
            for index, (shape, position) in enumerate(zip(move.shapes, move.parts, strict=True))
        ]
        whole = carried(table, parts, move.steps)
        if whole is not None and move.whole is not None:
            found[1 - move.side][move.whole] = table.shaped(whole)
    return found


def not_met(numberings: Sequence[Numbering], moves: Sequence[WeightView]) -> list[Frontier]:
    """Returns a difference for each moved result that is not shown equal."""
    missed, table = [], numberings[0].table
    for move in moves:
        left, right = (numberings[side].ends() for side in (move.side, 1 - move.side))
        whole = None
        if isinstance(table, Terms) and None not in move.parts and move.whole is not None:
            values = []
            for position, shape in zip(move.positions(move.side), move.shapes, strict=True):
                kind = parse_array(_result_types(numberings[move.side].program)[position])
                values.append(table.value(left[position], kind) if kind and kind.shape == shape else None)
            whole = None if None in values else carried(table, values, move.steps)
        if whole is None or table.shaped(whole) != right[move.whole]:  # pyright: ignore
            where = f"result {move.name}"
            missed.append(Frontier(where=where, differences=("moved by the weight map, not shown equal",)))
    return missed


def _result_types(program: StableProgram) -> list[str]:
    main = next(op for op in program.module_op.body.operations if is_main(op))
    with program.module_op.context:
        return [
            str(kind) for kind in ir.FunctionType(main.operation.attributes["function_type"].value).results
        ]


@RewriteRule(
    name=MOVED,
    rewrites="an argument or result that the weight map reshapes, stacks, splits or joins -> a view of its parts",
    condition="the map's transform is a reshape or a join, after reshapes, of whole arrays",
    argument="Both sides are given the same elements; the map says where each lies. Reshapes and joins are views.",
    attacked_by="stacked layers",
    keeps_narrow=True,
)
@RewriteRule(
    name="turned-weights",
    rewrites="an argument or result that the weight map transposes -> a view of its parts",
    condition="as for moved-weights, transpositions among the steps",
    argument="As for moved-weights; but compiled loops and products then run in another order.",
    attacked_by="transposed",
    loose=True,
    keeps_narrow=True,
)
def carried(table: Terms, parts: Sequence[Value], steps: Sequence[Step]) -> Value | None:
    """Returns the result of the steps on the parts; None if a rule does not allow it."""
    values = list(parts)
    table.narrow = is_narrow(values[0].type.element)
    rule = "turned-weights" if any(name == "transpose" for name, _ in steps) else MOVED
    if not table.applies(rule):
        return None
    for name, numbers in steps:
        groups = [values] if name == "join" else [[value] for value in values]
        made = [_step(table, name, numbers, group) for group in groups]
        values = [value for value in made if value is not None]
        if len(values) < len(made):
            return None
    return values[0] if len(values) == 1 else None


def _step(table: Terms, name: str, numbers: tuple[int, ...], values: Sequence[Value]) -> Value | None:
    shape = values[0].type.shape
    if name == "reshape":
        assert math.prod(numbers) == math.prod(shape), (numbers, shape)
        made, attributes, operation = numbers, {}, "stablehlo.reshape"
    elif name == "transpose":
        made, operation = tuple(shape[axis] for axis in numbers), "stablehlo.transpose"
        attributes = {"permutation": numbers}
    else:
        (axis,), operation = numbers, "stablehlo.concatenate"
        made = (*shape[:axis], sum(value.type.shape[axis] for value in values), *shape[axis + 1 :])
        attributes = {"dimension": axis}
    out = Array(made, values[0].type.element)
    view = NORMAL_FORMS[operation](table, Application(attributes, out, values))
    return None if view is None else Value(view, out)
