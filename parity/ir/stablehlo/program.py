"""A StableHLO program in two views: by function, as the module has it, and with its calls inlined.

By function, values are slots of their function and each function is read once. Inlined, values are numbered 0, 1, 2,
... through the whole program.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from parity.ir.jax_internals import ir


def is_float(kind: str) -> bool:
    """True for the type of an array of floats, as text."""
    return "f" in kind.partition("<")[2]


class Kind:
    """Treatment of an operation by the numbering; plain integers, because Python 3.11 looks up enum members slowly."""

    PLAIN = 0  # a pure function of its operands, in order
    REORDER = 1  # like PLAIN; in any order up to rounding in fused code and up to which of two NaNs is kept
    COMMUTE = 2  # a pure function of two operands, in any order
    REGION = 3  # like PLAIN, with regions that are compared as closed functions
    WHILE = 4
    BRANCH = 5  # case and if: regions without parameters, results by slot
    BARRIER = 6
    MANUAL = 7  # sdy.manual_computation: parameters and results by slot
    CALL = 8  # only by function: inlined before numbering
    SKIP = 9  # never read: results are the operands (sharding constraints under ignore_shardings)
    CONSTRAINT = 10  # a closed sharding constraint; the same one twice in a row counts once


SLOTTED = frozenset({Kind.WHILE, Kind.BRANCH, Kind.BARRIER, Kind.MANUAL})
"""Kinds whose results are numbered slot by slot."""


@dataclasses.dataclass(frozen=True, eq=False)
class Form:
    """Content of an operation without its operands, shared by all operations with the same content.

    Args:
        kind: treatment by the numbering.
        word: name, attributes and result types; equal words mean equal functions of the operands.
        bare: name and attributes that belong to no single slot; for kinds with slots.
        slots_in: attributes of each operand slot; entries may be empty.
        slots_out: attributes and types of each result slot.
        symbols: functions that the attributes refer to; their bodies become regions.
        effect: True if the operation must be kept, in order, even if nothing uses its results.
        attributed: True if it has attributes that count.
    """

    name: str
    kind: int
    word: str
    bare: str
    slots_in: tuple[str, ...]
    slots_out: tuple[str, ...]
    symbols: tuple[str, ...]
    effect: bool
    attributed: bool
    attributes: Mapping[str, Any]
    types: tuple[Any, ...]

    @functools.cached_property
    def is_float(self) -> bool:
        """True if the first result consists of floats."""
        return is_float(self.slots_out[0])

    @functools.cached_property
    def may_fuse(self) -> bool:
        """True for floats, and for booleans, which choose among them; integers are exact wherever they are computed."""
        return any(is_float(kind) or "i1>" in kind for kind in self.slots_out)

    @functools.cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Dimensions of each result; empty if one is not a tensor."""
        ranked = all(isinstance(kind, ir.RankedTensorType) for kind in self.types)
        return tuple(tuple(kind.shape) for kind in self.types) if ranked else ()

    @functools.cached_property
    def elements(self) -> tuple[str, ...]:
        """Element type of each result, as MLIR prints it; empty if one is not a tensor."""
        return tuple(str(kind.element_type) for kind in self.types[: len(self.shapes)])


@dataclasses.dataclass(frozen=True, slots=True)
class Chain:
    """The call sites through which an inlined operation was reached, innermost first."""

    call: Any
    parent: "Chain | None"


@dataclasses.dataclass(eq=False, slots=True)
class Op:
    """One operation, of a function or of the inlined program.

    Args:
        regions: its regions; in the inlined program also the bodies of functions that it names.
        source: the operation in the module.
        callee: the called function; empty if none.
        effect: True if it, its regions or the functions that it names do more than compute results.
        chain: the calls through which it was reached; only in the inlined program.
        live: None for a dead operation, else the result slots in use; kinds without slots have ``(0,)``. Only in the
            inlined program.
        captures: caches the outer values that the regions read.
    """

    form: Form
    operands: tuple[int, ...]
    results: range
    regions: "tuple[Region, ...]"
    source: Any
    callee: str = ""
    effect: bool = False
    chain: Chain | None = None
    live: tuple[int, ...] | None = None
    captures: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """The operation's name, such as ``stablehlo.add``."""
        return self.form.name


@dataclasses.dataclass(eq=False, slots=True)
class Region:
    """A block; it may read the values of the regions around it.

    Args:
        types: types of the parameters, as text.
        outputs: values that it returns.
    """

    parameters: tuple[int, ...]
    types: tuple[str, ...]
    ops: list[Op] = dataclasses.field(default_factory=list)
    outputs: tuple[int, ...] = ()

    def walk(self) -> Iterator[Op]:
        """Yields the operations and those inside them, outer before inner."""
        for op in self.ops:
            yield op
            for inner in op.regions:
                yield from inner.walk()


def combiner(region: Region) -> str:
    """Returns the operation by which a region combines its two parameters; empty if it does anything else."""
    ops = [op for op in region.ops if op.live is not None]
    if len(ops) != 1 or sorted(ops[0].operands) != sorted(region.parameters):
        return ""
    return ops[0].name if tuple(region.outputs) == tuple(ops[0].results) else ""


def captures(op: Op) -> tuple[int, ...]:
    """Returns the outer values that an operation's regions read."""
    if op.captures is None:
        used: set[int] = set()
        defined: set[int] = set()
        regions = list(op.regions)
        for region in regions:  # grows
            defined.update(region.parameters)
            used.update(region.outputs)
            for inner in region.ops:
                if inner.live is not None:
                    used.update(inner.operands)
                    regions += inner.regions
                defined.update(inner.results)
        op.captures = tuple(sorted(used - defined))
    return op.captures


@dataclasses.dataclass(frozen=True, eq=False)
class Function:
    """A function, read once.

    Args:
        notes: semantic attributes as text; if any, calls to the function are not inlined.
        effect: True if it does more than compute results.
    """

    operation: Any
    body: Region
    slots: int
    notes: str
    effect: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StableProgram:
    """An inlined program.

    Args:
        values: number of values; values are ``0 .. values - 1``.
        size: number of operations, including dead ones.
        arguments: attributes of each argument of ``@main`` by name, without the names of arguments and results.
        results: attributes of each result, likewise.
        argument_names: names of the arguments in the locations; for messages only.
        result_names: names of the results in ``jax.result_info``; for messages only.
        constants: word of each argument of ``@main`` that is a hoisted constant, by position.
        module: the semantic attributes of the module, and its definitions other than functions.
        meshes: each mesh by name, as MLIR prints it.
        module_op: the MLIR module, kept alive because operations point into it.
        ignored_shardings: True if sharding annotations were dropped.
        without: positions of the results to leave out.
    """

    body: Region
    values: int
    size: int
    arguments: tuple[dict[str, str], ...]
    results: tuple[dict[str, str], ...]
    argument_names: tuple[str, ...]
    result_names: tuple[str, ...]
    constants: dict[int, str]
    module: dict[str, str]
    meshes: Mapping[str, str]
    module_op: Any
    ignored_shardings: bool
    without: frozenset[int] = frozenset()


def makers(program: StableProgram) -> dict[int, Op]:
    """Returns the live operation that makes each value, outer before inner."""
    return {value: op for op in program.body.walk() if op.live is not None for value in op.results}
