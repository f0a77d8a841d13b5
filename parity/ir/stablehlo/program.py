"""The shape of a program as the prover sees it: calls inlined, values numbered 0, 1, 2, ..."""

import dataclasses
import enum
from typing import Any

__all__ = ["Chain", "Form", "Kind", "Op", "Region", "StableProgram"]


class Kind(enum.IntEnum):
    """How the numbering treats an operation."""

    PLAIN = 0  # a pure function of its operands, in order
    REORDER = 1  # like PLAIN; in any order up to rounding in fused code and up to which of two NaNs is kept
    COMMUTE = 2  # a pure function of two operands, in any order
    REGION = 3  # like PLAIN, with regions that are compared as closed functions
    WHILE = 4
    BRANCH = 5  # case and if: regions without parameters, results by slot
    BARRIER = 6
    MANUAL = 7  # sdy.manual_computation: parameters and results by slot
    CALL = 8  # only in templates: inlined before numbering
    SKIP = 9  # results are the operands (sharding constraints under ignore_shardings)
    CONSTRAINT = 10  # a closed sharding constraint; the same one twice in a row counts once


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """What an operation is, apart from its operands: shared by all operations that look alike.

    Args:
        name: the operation's name, such as ``stablehlo.add``.
        kind: how the numbering treats it.
        word: name, attributes and result types; equal words mean equal functions of the operands.
        bare: name and attributes that belong to no single slot; for kinds with slots.
        slots_in: what attributes and types say of each operand slot; empty if nothing.
        slots_out: the same for each result slot.
        symbols: functions that the attributes refer to; their bodies become regions.
        effect: whether the operation must be kept, in order, even if nothing uses its results.
        results: the number of results.
        attributed: whether it has attributes.
    """

    name: str
    kind: Kind
    word: str
    bare: str
    slots_in: tuple[str, ...]
    slots_out: tuple[str, ...]
    symbols: tuple[str, ...]
    effect: bool
    results: int
    attributed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Chain:
    """The call sites through which an inlined operation was reached, innermost first."""

    call: Any
    parent: "Chain | None"


class Op:
    """One operation of the inlined program.

    ``live`` is None for a dead operation, else the result slots in use; kinds without slots have ``(0,)``.
    ``captures`` caches the outer values that the regions read.
    """

    __slots__ = ("captures", "chain", "effect", "form", "live", "operands", "regions", "results", "source")

    def __init__(
        self, form: Form, operands: tuple[int, ...], results: range, source: Any, chain: Chain | None
    ):
        self.form = form
        self.operands = operands
        self.results = results
        self.source = source
        self.chain = chain
        self.regions: tuple[Region, ...] = ()
        self.effect = form.effect
        self.live: tuple[int, ...] | None = None
        self.captures: tuple[int, ...] | None = None


class Region:
    """A block: parameters, operations, and the values that it returns."""

    __slots__ = ("effect", "ops", "outputs", "parameters", "types")

    def __init__(self, parameters: tuple[int, ...], types: tuple[str, ...]):
        self.parameters = parameters
        self.types = types
        self.ops: list[Op] = []
        self.outputs: tuple[int, ...] = ()
        self.effect = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StableProgram:
    """An inlined program.

    Args:
        body: the entry function.
        values: how many values there are; values are ``0 .. values - 1``.
        operations: how many operations there are, dead ones included.
        arguments: per argument of ``@main`` its attributes by name; names of results dropped.
        results: the same per result.
        argument_names: what the locations call the arguments; for messages only.
        result_names: what ``jax.result_info`` calls the results; for messages only.
        constants: word of each argument of ``@main`` that is a constant which JAX hoisted, by position.
        module: the attributes of the module that carry meaning, and what it defines besides functions.
        module_op: the MLIR module, kept alive because operations point into it.
        ignored_shardings: whether sharding annotations were dropped.
        without: positions of results that do not count.
    """

    body: Region
    values: int
    operations: int
    arguments: tuple[dict[str, str], ...]
    results: tuple[dict[str, str], ...]
    argument_names: tuple[str, ...]
    result_names: tuple[str, ...]
    constants: dict[int, str]
    module: dict[str, str]
    module_op: Any
    ignored_shardings: bool
    without: frozenset[int] = frozenset()
