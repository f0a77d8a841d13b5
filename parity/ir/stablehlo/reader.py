"""Reads a module into a `StableProgram`: every call is replaced by the operations of its function."""

import contextlib
import dataclasses
import gc
import re
from collections.abc import Collection, Iterator
from typing import Any

from parity.ir.mlir import attribute_items, dictionary_items
from parity.ir.stablehlo.functions import Functions
from parity.ir.stablehlo.liveness import mark_live
from parity.ir.stablehlo.program import Block, Chain, Kind, Op, Region, StableProgram, Step

__all__ = ["collector_paused", "read_program"]

_HOISTED = "jax.const"
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


def read_program(
    program: Any, *, ignore_shardings: bool = False, without: Collection[int] = ()
) -> StableProgram:
    """Reads a lowered program, inlines its calls and marks what its results need.

    Args:
        program: a ``jax.stages.Lowered``, an MLIR module, its functions, or a program that was read before.
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
    functions = Functions.of(program, ignore_shardings=ignore_shardings)
    with functions.module.context, collector_paused():
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
    return StableProgram(
        body=body,
        values=inliner.values,
        operations=inliner.operations,
        arguments=arguments,
        results=functions.sides(items.get("res_attrs"), len(body.outputs)),
        argument_names=_argument_names(main.operation),
        result_names=_result_names(items.get("res_attrs"), len(body.outputs)),
        constants={
            position: f"{signatures.array(functions.hoisted, position)} {sorted(side.items())} {kind}"
            for position, (side, kind) in enumerate(zip(arguments, body.types, strict=True))
            if _HOISTED in side
        },
        module={**texts, **signatures.definitions(), **({"main": main.notes} if main.notes else {})},
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

    def _region(self, block: Block, mapping: list[int], chain: Chain | None) -> Region:
        region = Region(tuple(self._fresh(block.parameters, mapping)), block.types)
        self._fill(region, block, mapping, chain, {})
        region.outputs = tuple([mapping[slot] for slot in block.outputs])
        return region

    def _fresh(self, slots: tuple[int, ...], mapping: list[int]) -> range:
        start = self.values
        self.values += len(slots)
        for offset, slot in enumerate(slots):
            mapping[slot] = start + offset
        return range(start, self.values)

    def _fill(
        self, region: Region, block: Block, mapping: list[int], chain: Chain | None, calls: dict
    ) -> None:
        for step in block.steps:
            inputs = tuple([mapping[slot] for slot in step.operands])
            form = step.form
            if form.kind == Kind.CALL and self._inline(region, step, inputs, mapping, chain, calls):
                continue
            self.operations += 1
            op = Op(step, inputs, self._fresh(step.results, mapping), chain)
            if step.blocks or form.symbols or step.callee:
                self._add_regions(op, step, mapping, chain)
            region.ops.append(op)

    def _inline(
        self,
        region: Region,
        step: Step,
        inputs: tuple[int, ...],
        mapping: list[int],
        chain: Chain | None,
        calls: dict,
    ) -> bool:
        """Puts the callee's operations in place of a call; returns False if the call must stay opaque."""
        function = self._functions[step.callee]
        if function.notes or step.form.bare != "func.call []":
            return False
        known = calls.get((step.callee, inputs))
        if known is None:
            if self.operations > _MAX_OPERATIONS:
                raise ValueError(f"module: over {_MAX_OPERATIONS} operations once calls are inlined")
            inner = [-1] * function.slots
            for parameter, value in zip(function.body.parameters, inputs, strict=True):
                inner[parameter] = value
            self._fill(region, function.body, inner, Chain(step.source, chain), {})
            known = tuple([inner[slot] for slot in function.body.outputs])
            # The same call with the same operands is the same value, unless it does something besides.
            if not step.effect:
                calls[step.callee, inputs] = known
        for slot, value in zip(step.results, known, strict=True):
            mapping[slot] = value
        return True

    def _add_regions(self, op: Op, step: Step, mapping: list[int], chain: Chain | None) -> None:
        parts = [self._region(each, mapping, chain) for each in step.blocks]
        names = [*op.form.symbols, step.callee] if step.callee else op.form.symbols
        parts += [self.function(name, Chain(op.source, chain)) for name in names]
        notes = [self._functions[name].notes for name in names]
        if step.callee or any(notes):
            op.form = dataclasses.replace(op.form, kind=Kind.REGION, word=f"{op.form.word} {notes}")
        op.regions = tuple(parts)


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
