"""Functions of a StableHLO module, each read once: operations with their forms, values by slot."""

from typing import Any

from parity.ir.jax_internals import stablehlo_module
from parity.ir.mlir import attribute_items, dictionary_items, symbol_of
from parity.ir.stablehlo.operations import Group, names_of
from parity.ir.stablehlo.program import Function, Kind, Op, Region
from parity.ir.stablehlo.signatures import OpSignatures

_NAMES = frozenset({"jax.result_info", "jax.arg_info"})
_FUNCTION_NAMES = frozenset({"sym_name", "sym_visibility", "function_type", "arg_attrs", "res_attrs"})
_RETURNS = names_of(Group.ENDS)


class Functions:
    """The functions of a lowered program, read when first needed.

    Args:
        program: a ``jax.stages.Lowered`` or an MLIR module.
        ignore_shardings: True to drop sharding annotations.

    Attributes:
        module: the MLIR module, kept alive because operations point into it.

    Raises:
        ValueError: the module has no ``@main``; while reading, if it has unstructured control flow or recursion.
    """

    def __init__(self, program: Any, *, ignore_shardings: bool = False):
        self.program, self.ignored_shardings = program, ignore_shardings
        self.module = stablehlo_module(program)
        with self.module.context:
            self.signatures = OpSignatures(self.module, ignore_shardings)
        if "main" not in self.signatures.functions:
            raise ValueError(
                f"module: got functions {sorted(self.signatures.functions)}, expected one named main"
            )
        self._read: dict[str, Function | None] = {}

    def __getitem__(self, name: str) -> Function:
        """Returns the function of a name."""
        if name not in self._read:
            self._read[name] = None
            self._read[name] = self._function(name)
        function = self._read[name]
        if function is None:
            raise ValueError(f"function @{name}: calls itself, expected no recursion")
        return function

    def sides(self, attributes: Any, count: int) -> tuple[dict[str, str], ...]:
        """Returns ``arg_attrs`` or ``res_attrs`` of a function, one for each of ``count``, as text, without names."""
        if attributes is None:
            return ({},) * count
        return tuple(self.signatures.attributes(dictionary_items(each), _NAMES) for each in attributes)

    def _function(self, name: str) -> Function:
        operation = self.signatures.functions[name]
        numbers: dict[Any, int] = {}
        with self.module.context:
            body = self._region(operation.regions[0], numbers)
            effect = any(op.effect for op in body.ops)
            return Function(operation, body, len(numbers), self._notes(operation, name), effect)

    def _notes(self, operation: Any, name: str) -> str:
        """Returns the semantic attributes of a function; for ``main`` without those of its arguments and results."""
        items = dict(attribute_items(operation))
        notes = self.signatures.attributes(list(items.items()), _FUNCTION_NAMES)
        for key in () if name == "main" else ("arg_attrs", "res_attrs"):
            sides = self.sides(items.get(key), 0)
            if any(sides):
                notes[key] = str([sorted(side.items()) for side in sides])
        return str(sorted(notes.items())) if notes else ""

    def _region(self, region: Any, numbers: dict[Any, int]) -> Region:
        blocks = list(region.blocks)
        if len(blocks) != 1:
            raise ValueError(f"region: got {len(blocks)} blocks, expected 1 (structured control flow)")
        arguments = list(blocks[0].arguments)
        types = tuple([self.signatures.closed_text(argument.type) for argument in arguments])
        found = Region(tuple(_fresh(arguments, numbers)), types)
        for each in blocks[0].operations:
            operation = each.operation
            operands = tuple([numbers[value] for value in operation.operands])
            form = self.signatures.form(operation, len(operands))
            if form.name in _RETURNS:
                found.outputs = operands
                if form.attributes:  # JAX is not known to put any here: compare them, do not skip them
                    found.ops.append(Op(form, operands, range(0), (), operation, effect=True))
            elif form.kind == Kind.SKIP:
                numbers.update(zip(operation.results, operands, strict=True))
            else:
                op = Op(form, operands, range(0), (), operation, "", form.effect)
                if regions := operation.regions:
                    op.regions = tuple([self._region(inner, numbers) for inner in regions])
                    op.effect = op.effect or any(one.effect for inner in op.regions for one in inner.ops)
                op.results = _fresh(operation.results, numbers)
                if form.kind == Kind.CALL:
                    op.callee = symbol_of(str(form.attributes["callee"]))
                for name in (*form.symbols, op.callee) if op.callee else form.symbols:
                    op.effect = self[name].effect or op.effect
                found.ops.append(op)
        return found


def _fresh(values: Any, numbers: dict[Any, int]) -> range:
    """Numbers the values of a function and returns their slots."""
    start = len(numbers)
    for value in values:
        numbers[value] = len(numbers)
    return range(start, len(numbers))
