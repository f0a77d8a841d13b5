"""Reads a module into a `StableProgram`: every call is replaced by the operations of its function."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from parity.ir.jax_internals import hoisted_constants
from parity.ir.mlir import attribute_items, dictionary_items
from parity.ir.stablehlo.functions import Functions
from parity.ir.stablehlo.liveness import mark_live
from parity.ir.stablehlo.program import Chain, Kind, Op, Region, StableProgram

_HOISTED = "jax.const"
_MAX_OPERATIONS = 20_000_000


def read_program(
    program: Any, *, ignore_shardings: bool = False, without: Collection[int] = ()
) -> StableProgram:
    """Reads a lowered program, inlines its calls and marks the operations that its results need.

    Args:
        program: a ``jax.stages.Lowered``, an MLIR module, its functions with their shardings, or a program that was
            read before.
        ignore_shardings: True to drop sharding annotations.
        without: positions of the results to leave out; operations that only they need are dead.

    Raises:
        ValueError: the program was read with other options, or cannot be read.
    """
    if isinstance(program, StableProgram):
        if (program.ignored_shardings, program.without) != (ignore_shardings, frozenset(without)):
            raise ValueError("program: was read with other shardings or results, expected the same")
        return program
    is_read = isinstance(program, Functions) and not ignore_shardings
    functions = program if is_read else Functions(program, ignore_shardings=ignore_shardings)
    with functions.module.context:
        result = _inlined(functions, frozenset(without))
        mark_live(result)
    return result


def _inlined(functions: Functions, without: frozenset[int]) -> StableProgram:
    signatures, main = functions.signatures, functions["main"]
    inliner = _Inliner(functions)
    body = inliner.function("main", None)
    items = dict(attribute_items(main.operation))
    dropped = ("mhlo.num_partitions", "mhlo.num_replicas") if functions.ignored_shardings else ()
    texts = signatures.attributes(
        attribute_items(functions.module.operation), frozenset({"sym_name", *dropped})
    )
    arguments = functions.sides(items.get("arg_attrs"), len(body.parameters))
    bare = functions.program is functions.module
    hoisted = () if bare else hoisted_constants(functions.program)
    return StableProgram(
        body=body,
        values=inliner.values,
        size=inliner.operations,
        arguments=arguments,
        results=functions.sides(items.get("res_attrs"), len(body.outputs)),
        argument_names=_argument_names(main.operation),
        result_names=_result_names(items.get("res_attrs"), len(body.outputs)),
        constants={
            position: f"{signatures.array(hoisted[position] if hoisted else None)} {sorted(side.items())} {kind}"
            for position, (side, kind) in enumerate(zip(arguments, body.types, strict=True))
            if _HOISTED in side
        },
        module={**texts, **signatures.definitions(), **({"main": main.notes} if main.notes else {})},
        meshes=signatures.meshes,
        module_op=functions.module,
        ignored_shardings=functions.ignored_shardings,
        without=without,
    )


class _Inliner:
    """Numbers the values of a whole program."""

    def __init__(self, functions: Functions):
        self._functions = functions
        self.values = 0
        self.operations = 0

    def function(self, name: str, chain: Chain | None) -> Region:
        """Returns a closed region of a function, with fresh parameters."""
        function = self._functions[name]
        return self._region(function.body, [-1] * function.slots, chain)

    def _region(self, body: Region, mapping: list[int], chain: Chain | None) -> Region:
        region = Region(tuple(self._fresh(body.parameters, mapping)), body.types)
        self._fill(region, body, mapping, chain)
        region.outputs = tuple([mapping[slot] for slot in body.outputs])
        return region

    def _fresh(self, slots: Sequence[int], mapping: list[int]) -> range:
        start = self.values
        self.values += len(slots)
        for offset, slot in enumerate(slots):
            mapping[slot] = start + offset
        return range(start, self.values)

    def _fill(self, region: Region, body: Region, mapping: list[int], chain: Chain | None) -> None:
        """Copies the operations of a function's region into a region of the program."""
        calls: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
        for op in body.ops:
            inputs = tuple([mapping[slot] for slot in op.operands])
            # Inlining would lose attributes of the call, or of its function.
            plain = op.form.bare == "func.call []"
            if plain and not self._functions[op.callee].notes:
                known = calls.get((op.callee, inputs))
                if known is None:
                    known = self._inline(region, op, inputs, chain)
                    # The same call with the same operands gives the same value, unless it has side effects.
                    if not op.effect:
                        calls[op.callee, inputs] = known
                for slot, value in zip(op.results, known, strict=True):
                    mapping[slot] = value
                continue
            self.operations += 1
            results = self._fresh(op.results, mapping)
            made = Op(op.form, inputs, results, (), op.source, op.callee, op.effect, chain)
            if op.regions or op.form.symbols or op.callee:
                self._add_regions(made, op, mapping)
            region.ops.append(made)

    def _inline(
        self, region: Region, call: Op, inputs: tuple[int, ...], chain: Chain | None
    ) -> tuple[int, ...]:
        """Replaces a call by the callee's operations and returns its results."""
        if self.operations > _MAX_OPERATIONS:
            raise ValueError(f"module: over {_MAX_OPERATIONS} operations once calls are inlined")
        function = self._functions[call.callee]
        inner = [-1] * function.slots
        for parameter, value in zip(function.body.parameters, inputs, strict=True):
            inner[parameter] = value
        self._fill(region, function.body, inner, Chain(call.source, chain))
        return tuple([inner[slot] for slot in function.body.outputs])

    def _add_regions(self, made: Op, op: Op, mapping: list[int]) -> None:
        parts = [self._region(each, mapping, made.chain) for each in op.regions]
        names = [*op.form.symbols, op.callee] if op.callee else op.form.symbols
        parts += [self.function(name, Chain(op.source, made.chain)) for name in names]
        notes = [self._functions[name].notes for name in names]
        if op.callee or any(notes):
            made.form = dataclasses.replace(op.form, kind=Kind.REGION, word=f"{op.form.word} {notes}")
        made.regions = tuple(parts)


def _argument_names(main: Any) -> tuple[str, ...]:
    places = (each.location for each in main.regions[0].blocks[0].arguments)
    return tuple(getattr(place, "name_str", f"argument {position}") for position, place in enumerate(places))


def _result_names(attributes: Any, count: int) -> tuple[str, ...]:
    found = [dict(dictionary_items(each)) for each in attributes or []] or [{}] * count
    return tuple(
        each["jax.result_info"].value if "jax.result_info" in each else f"result {position}"
        for position, each in enumerate(found)
    )
