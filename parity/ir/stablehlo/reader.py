"""Reads an MLIR module into a `StableProgram`: one template per function, instantiated at every call."""

import contextlib
import dataclasses
import gc
import re
from collections.abc import Collection, Iterator
from typing import Any

from parity.ir.jax_internals import hoisted_constants, ir, stablehlo_module
from parity.ir.mlir import attribute_items, dictionary_items
from parity.ir.stablehlo.liveness import mark_live
from parity.ir.stablehlo.operations import Group, facts
from parity.ir.stablehlo.program import Chain, Form, Kind, Op, Region, StableProgram
from parity.ir.stablehlo.signatures import OpSignatures
from parity.ir.stablehlo.tokens import symbol_of

__all__ = ["collector_paused", "read_program"]

_NAMES = frozenset({"jax.result_info", "jax.arg_info"})
_HOISTED = "jax.const"
_FUNCTION_NAMES = frozenset({"sym_name", "sym_visibility", "function_type", "arg_attrs", "res_attrs"})
_MAX_OPERATIONS = 20_000_000


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keeps the garbage collector from scanning a growing heap of live objects: it halves the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Template:
    """A function as written: values are local, parameters first."""

    __slots__ = ("body", "count", "notes")

    def __init__(self, body: "_Block", count: int, notes: str):
        self.body = body
        self.count = count
        self.notes = notes


class _Block:
    __slots__ = ("ops", "outputs", "parameters", "types")

    def __init__(self, parameters: list[int], types: tuple[str, ...]):
        self.parameters = parameters
        self.types = types
        self.ops: list[tuple[Form, list[int], list[int], list[_Block], Any, str]] = []
        self.outputs: list[int] = []


def read_program(
    program: Any, *, ignore_shardings: bool = False, without: Collection[int] = ()
) -> StableProgram:
    """Reads a lowered program, inlines its calls and marks what its results need.

    Args:
        program: a ``jax.stages.Lowered``, an MLIR module, or a program that was read before.
        ignore_shardings: whether to drop sharding annotations.
        without: positions of results that do not count: what only they need is dead.

    Raises:
        ValueError: if the program was read with other options, or the module has no ``@main``,
            unstructured control flow, or is too large once inlined.
    """
    if isinstance(program, StableProgram):
        if program.ignored_shardings != ignore_shardings:
            raise ValueError(
                f"program: read with ignore_shardings={program.ignored_shardings}, expected the other"
            )
        if program.without != frozenset(without):
            raise ValueError(f"program: read without results {sorted(program.without)}, expected others")
        return program
    module = stablehlo_module(program)
    with module.context, collector_paused():
        reader = _Reader(module, ignore_shardings)
        return reader.read(hoisted_constants(program) if program is not module else (), frozenset(without))


class _Reader:
    def __init__(self, module: ir.Module, ignore_shardings: bool):
        self._module = module
        self._ignore = ignore_shardings
        self._words = OpSignatures(module, ignore_shardings)
        self._templates: dict[str, _Template] = {}
        self._open: list[str] = []
        self._values = 0
        self._operations = 0

    def read(self, hoisted: tuple[Any, ...], without: frozenset[int]) -> StableProgram:
        if "main" not in self._words.functions:
            raise ValueError(
                f"module: got functions {sorted(self._words.functions)}, expected one called main"
            )
        main = self._words.functions["main"]
        items = dict(attribute_items(main))
        body = self._instantiate_function("main", None)
        dropped = ("mhlo.num_partitions", "mhlo.num_replicas") if self._ignore else ()
        texts = self._words.attributes(
            attribute_items(self._module.operation), frozenset({"sym_name", *dropped})
        )
        module = {**texts, **self._words.definitions()}
        if notes := self._template("main").notes:
            module["main"] = notes
        arguments = self._side_attributes(items.get("arg_attrs"), len(body.parameters))
        result = StableProgram(
            body=body,
            values=self._values,
            operations=self._operations,
            arguments=arguments,
            results=self._side_attributes(items.get("res_attrs"), len(body.outputs)),
            argument_names=_argument_names(main),
            result_names=_result_names(items.get("res_attrs"), len(body.outputs)),
            constants={
                position: f"{self._words.array(hoisted, position)} {sorted(side.items())} {kind}"
                for position, (side, kind) in enumerate(zip(arguments, body.types, strict=True))
                if _HOISTED in side
            },
            module=module,
            module_op=self._module,
            ignored_shardings=self._ignore,
            without=without,
        )
        mark_live(result)
        return result

    def _side_attributes(self, attributes: Any, count: int) -> tuple[dict[str, str], ...]:
        if attributes is None:
            return ({},) * count
        return tuple(self._words.attributes(dictionary_items(each), _NAMES) for each in attributes)

    def _template(self, name: str) -> _Template:
        template = self._templates.get(name)
        if template is None:
            function = self._words.functions[name]
            numbers: dict[Any, int] = {}
            body = self._read_block(function.regions[0], numbers)
            notes = self._function_notes(function, name)
            template = self._templates[name] = _Template(body, len(numbers), notes)
        return template

    def _function_notes(self, function: Any, name: str) -> str:
        """Attributes of a private function that mean something: then a call to it is not inlined."""
        items = dict(attribute_items(function))
        notes = self._words.attributes(list(items.items()), _FUNCTION_NAMES)
        for key in () if name == "main" else ("arg_attrs", "res_attrs"):
            sides = self._side_attributes(items.get(key), 0)
            if any(sides):
                notes[key] = str([sorted(side.items()) for side in sides])
        return str(sorted(notes.items())) if notes else ""

    def _read_block(self, region: Any, numbers: dict[Any, int]) -> _Block:
        blocks = list(region.blocks)
        if len(blocks) != 1:
            raise ValueError(f"region: got {len(blocks)} blocks, expected 1 (structured control flow)")
        arguments = list(blocks[0].arguments)
        for argument in arguments:
            numbers[argument] = len(numbers)
        types = tuple([self._words.type_text(argument.type) for argument in arguments])
        block = _Block([numbers[argument] for argument in arguments], types)
        form_of, append = self._words.form, block.ops.append
        for op in blocks[0].operations:
            operation = op.operation
            operands = [numbers[value] for value in operation.operands]
            form = form_of(operation)
            if facts(form.name).group is Group.ENDS:
                block.outputs = operands
                if len(
                    operation.attributes
                ):  # nothing is known to put any here: compare them, do not skip them
                    append((dataclasses.replace(form, effect=True), operands, [], [], operation, ""))
                continue
            regions = [self._read_block(each, numbers) for each in operation.regions]
            results = []
            for value in operation.results:
                numbers[value] = len(numbers)
                results.append(len(numbers) - 1)
            callee = symbol_of(str(operation.attributes["callee"])) if form.kind == Kind.CALL else ""
            append((form, operands, results, regions, operation, callee))
        return block

    def _instantiate_function(self, name: str, chain: Chain | None) -> Region:
        """Makes a closed region of a function, with fresh parameters."""
        if name in self._open:
            raise ValueError(f"function @{name}: calls itself, expected no recursion")
        template = self._template(name)
        mapping = [-1] * template.count
        return self._instantiate_block(template.body, mapping, chain, name)

    def _instantiate_block(
        self, block: _Block, mapping: list[int], chain: Chain | None, name: str = ""
    ) -> Region:
        region = Region(self._fresh(block.parameters, mapping), block.types)
        if name:
            self._open.append(name)
        self._fill(region, block, mapping, chain, {})
        if name:
            self._open.pop()
        region.outputs = tuple([mapping[value] for value in block.outputs])
        return region

    def _fresh(self, values: list[int], mapping: list[int]) -> tuple[int, ...]:
        start = self._values
        self._values += len(values)
        for offset, value in enumerate(values):
            mapping[value] = start + offset
        return tuple(range(start, self._values))

    def _fill(
        self, region: Region, block: _Block, mapping: list[int], chain: Chain | None, calls: dict
    ) -> None:
        for form, operands, results, regions, source, callee in block.ops:
            inputs = tuple([mapping[value] for value in operands])
            kind = form.kind
            if kind == Kind.CALL and self._inline(
                region, (form, inputs, results, source, callee), mapping, chain, calls
            ):
                continue
            if kind == Kind.SKIP:
                for result, value in zip(results, inputs, strict=True):
                    mapping[result] = value
                continue
            self._operations += 1
            start = self._values
            self._values += len(results)
            for offset, value in enumerate(results):
                mapping[value] = start + offset
            op = Op(form, inputs, range(start, self._values), source, chain)
            if regions or form.symbols or callee:
                self._add_regions(op, regions, mapping, chain, callee)
            region.effect = region.effect or op.effect
            region.ops.append(op)

    def _inline(
        self, region: Region, call: tuple, mapping: list[int], chain: Chain | None, calls: dict
    ) -> bool:
        """Puts the callee's operations in place of a call; says no if the call must stay opaque."""
        form, inputs, results, source, callee = call
        template = self._template(callee)
        if template.notes or form.bare != "func.call []":
            return False
        known = calls.get((callee, inputs))
        if known is None:
            if callee in self._open:
                raise ValueError(f"function @{callee}: calls itself, expected no recursion")
            if self._operations > _MAX_OPERATIONS:
                raise ValueError(f"module: over {_MAX_OPERATIONS} operations once calls are inlined")
            inner = [-1] * template.count
            for parameter, value in zip(template.body.parameters, inputs, strict=True):
                inner[parameter] = value
            effect_before, region.effect = region.effect, False
            self._open.append(callee)
            self._fill(region, template.body, inner, Chain(source, chain), {})
            self._open.pop()
            known = tuple([inner[value] for value in template.body.outputs])
            # The same call with the same operands is the same value, unless it does something besides.
            if not region.effect:
                calls[callee, inputs] = known
            region.effect = region.effect or effect_before
        for result, value in zip(results, known, strict=True):
            mapping[result] = value
        return True

    def _add_regions(
        self, op: Op, regions: list[_Block], mapping: list[int], chain: Chain | None, callee: str
    ) -> None:
        parts = [self._instantiate_block(each, mapping, chain) for each in regions]
        names = [*op.form.symbols, callee] if callee else op.form.symbols
        parts += [self._instantiate_function(name, Chain(op.source, chain)) for name in names]
        notes = [self._template(name).notes for name in names]
        if callee or any(notes):
            op.form = dataclasses.replace(op.form, kind=Kind.REGION, word=f"{op.form.word} {notes}")
        op.regions = tuple(parts)
        op.effect = op.effect or any(part.effect for part in parts)


def _argument_names(main: Any) -> tuple[str, ...]:
    names = []
    for position, argument in enumerate(main.regions[0].blocks[0].arguments):
        found = re.match(r'loc\("([^"]+)"', str(argument.location))
        names.append(found.group(1) if found else f"argument {position}")
    return tuple(names)


def _result_names(attributes: Any, count: int) -> tuple[str, ...]:
    found = [dict(dictionary_items(each)) for each in attributes or []] or [{}] * count
    return tuple(
        each["jax.result_info"].value if "jax.result_info" in each else f"result {position}"
        for position, each in enumerate(found)
    )
