"""Walk of a program: calls, loops of known length iteration by iteration, branches, devices in lockstep."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parity.ir.jax_internals import ir
from parity.ir.stablehlo.program import Op, Region
from parity.ir.stablehlo.reader import read_program
from parity.ir.stablehlo.signatures import mesh_axes
from parity.prove.exact.algebra import Algebra
from parity.prove.exact.contents import Contents, Step, content_of
from parity.prove.exact.contractions import CONTRACTIONS
from parity.prove.exact.devices import collective, device_count, manual
from parity.prove.exact.operations import OPERATIONS, Handler
from parity.prove.exact.tensors import Floats, Tensor, Tensors
from parity.prove.exact.terms import REAL, RefusalError, Terms, sort_of
from parity.prove.exact.thresholds import judged

SIZE_A_STEP = 10
"""Limit of terms and their arguments, as a multiple of the limit of operations."""

OF_NOTHING = frozenset({"stablehlo.concatenate", "stablehlo.pad", "stablehlo.slice"})
"""Operations that accept operands without elements."""

Value = Tensor | tuple[Tensor, ...] | None
"""A tensor; in a manual region one tensor per device if they differ; None if nothing needs it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """Semantics of the operations: normal forms, the function of each operation on tensors, the sorts of elements."""

    algebra: Callable[[Terms], Algebra]
    handlers: Mapping[str, Handler]
    sort_of: Callable[[str], str]


REALS = Arithmetic(algebra=Algebra, handlers={**OPERATIONS, **CONTRACTIONS}, sort_of=sort_of)
"""Exact real numbers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """Place where a term was first made.

    Args:
        loop_indices: index of the iteration of each enclosing loop.
        device: in a manual region.
    """

    step: Step
    loop_indices: tuple[int, ...]
    device: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Named:
    """A lowered program whose arguments and results have names.

    Args:
        program: a ``jax.stages.Lowered`` or an MLIR module.
        arguments, results: names by position in ``@main``.
    """

    program: Any
    arguments: Sequence[str]
    results: Sequence[str]


MOST_STEPS = 100_000_000


class Shared:
    """The state that both sides of one claim share: terms, and the results of each operation by its operands.

    Args:
        most_steps: limit of operations to walk; beyond it, the claim is refused.
        arithmetic: semantics of the operations.
    """

    def __init__(self, most_steps: int = MOST_STEPS, arithmetic: Arithmetic = REALS):
        self.most_steps, self.arithmetic = most_steps, arithmetic
        self.algebra = arithmetic.algebra(Terms())
        self.tensors, self.contents = Tensors(self.algebra), Contents()


class Interpreter:
    """Runs a program on tensors of terms.

    Attributes:
        types: shape and sort of each argument.
        steps: number of operations that were walked.
        turned: number of loop iterations among them.
    """

    def __init__(self, named: Named, shared: Shared):
        self.named, self.most, self.contents = named, shared.most_steps, shared.contents
        self.tensors, self.arithmetic = shared.tensors, shared.arithmetic
        self.algebra, self.terms = shared.algebra, shared.algebra.terms
        self.devices: Any = None
        self.loop_indices: list[int] = []
        self.steps = self.turned = 0
        self._known_steps: dict[Op, Step] = {}
        try:
            self.program = read_program(named.program, ignore_shardings=True)
        except ValueError as error:
            raise RefusalError(str(error)) from error
        for name, text in self.program.meshes.items():
            if "device_ids" in text:
                raise RefusalError(f"mesh {name}: got devices in an order of their own")
        self.meshes = {name: mesh_axes(text) for name, text in self.program.meshes.items()}
        self._values: list[Value] = [None] * self.program.values
        with self.program.module_op.context:
            self.types = self._types()

    def _types(self) -> dict[str, tuple[tuple[int, ...], str]]:
        names, sort_of = self.named.arguments, self.arithmetic.sort_of
        types: list[Any] = list(map(ir.Type.parse, self.program.body.types))
        if len(types) != len(names):
            raise RefusalError(f"got {len(types)} arguments of @main, expected {len(names)} with names")
        return {
            name: (tuple(each.shape), sort_of(str(each.element_type)))
            for name, each in zip(names, types, strict=True)
        }

    def walk(self, given: Mapping[str, Tensor]) -> dict[str, Any]:
        """Returns the results by name, for arguments by name."""
        arguments = [given[name] for name in self.named.arguments]
        exact = [dataclasses.replace(x, floats=Floats.EXACT) if x.sort == REAL else x for x in arguments]
        with self.program.module_op.context:
            results = self.run(self.program.body, [self.one(x) for x in exact])
        return dict(zip(self.named.results, results, strict=True))

    def remembered(self, key: tuple, make: Callable[[], Sequence[Value]]) -> list[Value]:
        """Returns the cached results for equal content and operands, or computes them."""
        known = self.tensors.results.get(key)
        if known is None:
            known = self.tensors.results[key] = [self.one(x) for x in make()]
        return known

    def one(self, x: Value) -> Value:
        """Returns the canonical one of all equal values; for equal tensors on all devices, a single tensor."""
        if x is None or isinstance(x, Tensor):
            return x and self.tensors.one(x)
        first, *others = each = tuple([self.tensors.one(part) for part in x])
        return first if all(part is first for part in others) else each

    def run(self, region: Region, arguments: Sequence[Value] = ()) -> list[Value]:
        """Returns the outputs of a region."""
        for parameter, value in zip(region.parameters, arguments, strict=True):
            self._values[parameter] = value
        for op in region.ops:
            if op.live is None:
                continue
            step = self._step(op)
            try:
                results = self._results(step)
            except RefusalError as error:
                error.step = error.step or step
                raise
            for result, value in zip(op.results, results, strict=True):
                self._values[result] = value
        return [self._values[value] for value in region.outputs]

    def _step(self, op: Op) -> Step:
        if op not in self._known_steps:
            sorts = tuple(map(self.arithmetic.sort_of, op.form.elements))
            self._known_steps[op] = Step(op, sorts, *content_of(op, self.contents))
        return self._known_steps[op]

    def _results(self, step: Step) -> Sequence[Value]:
        operands, captured = (
            [self._values[value] for value in values] for values in (step.operands, step.captured)
        )
        key = (step.content, self.devices, *operands, *captured)
        return self.remembered(key, lambda: self._made(step, operands))

    def _made(self, step: Step, operands: list[Any]) -> Sequence[Value]:
        self.steps += 1
        if self.steps > self.most or self.terms.size > SIZE_A_STEP * self.most:
            raise RefusalError(
                f"got over {self.most} operations of all iterations, or {SIZE_A_STEP} terms and arguments for each"
            )
        if step.name == "stablehlo.optimization_barrier":
            return operands
        if step.name == "func.call":
            return self.run(step.op.regions[-1], operands)
        if step.name == "stablehlo.while":
            return self._loop(step, operands)
        if step.name in ("stablehlo.case", "stablehlo.if"):
            return self._branch(step, operands[0])
        if step.name == "sdy.manual_computation":
            return manual(self, step, operands)
        handler = self.arithmetic.handlers.get(step.name)
        if handler is not None:
            return self._lockstep(handler, step, operands)
        if self.devices is None:
            raise RefusalError(f"{step.name}: not known")
        return collective(self, step, operands)

    def _handled(self, handler: Handler, step: Step, operands: Sequence[Tensor]) -> list[Tensor]:
        """Returns the results of an operation, with the known properties of their floats."""
        if step.name not in OF_NOTHING and any(0 in x.shape for x in operands):
            raise RefusalError(f"{step.name}: got a dimension of length 0")
        return judged(self.algebra, step, operands, handler(self.tensors, step, operands))

    def origin(self, step: Step, device: int | None = None) -> Origin:
        """Returns the current place of the walk."""
        return Origin(step, tuple(self.loop_indices), device)

    def _lockstep(self, handler: Any, step: Step, operands: list[Any]) -> Sequence[Value]:
        """Runs an operation on every device, once for devices with the same tensors."""
        if all(isinstance(x, Tensor) for x in operands):
            self.terms.origin = self.origin(step)
            return self._handled(handler, step, operands)
        spread = [(x,) * device_count(self.devices) if isinstance(x, Tensor) else x for x in operands]
        found = []
        for device, own in enumerate(zip(*spread, strict=True)):

            def make(device: int = device, own: tuple[Tensor, ...] = own) -> Sequence[Value]:
                self.terms.origin = self.origin(step, device)
                return self._handled(handler, step, own)

            found.append(self.remembered((step.content, None, *own), make))
        return list(zip(*found, strict=True))

    def _loop(self, step: Step, carry: list[Value]) -> list[Value]:
        condition, body = step.op.regions
        self.loop_indices.append(0)
        while goes_on := self._known(self.run(condition, carry)[0]):
            carry = self.run(body, carry)
            self.loop_indices[-1] += 1
        if goes_on is None:
            raise RefusalError(
                "while: got a condition that depends on the inputs, expected a known trip count"
            )
        self.turned += self.loop_indices.pop()
        return carry

    def _known(self, value: Value) -> Any:
        """Returns a constant that is equal everywhere; None for any other value."""
        each: Any = value if isinstance(value, tuple) else (value,)
        found = {self.algebra.literal(x.only) for x in each}
        return found.pop() if len(found) == 1 else None

    def _branch(self, step: Step, index: Any) -> Sequence[Value]:
        """Runs the branch that is known to be taken; else runs all and selects, as branches are total here."""
        known, last = self._known(index), len(step.op.regions) - 1
        if known is not None:
            chosen = int(not known) if step.name == "stablehlo.if" else known
            return self.run(step.op.regions[chosen if 0 <= chosen <= last else last])
        if self.devices is not None:
            raise RefusalError(
                f"{step.name}: got an index that depends on the inputs, on devices in lockstep"
            )
        *others, results = [self.run(region) for region in step.op.regions]
        tests = [index.only]
        if step.name == "stablehlo.case":
            places = [self.algebra.constant(place, index.sort) for place in range(last)]
            tests = [self.algebra.map("compare", [index.only, place], "i1", "EQ") for place in places]
        for test, options in reversed(list(zip(tests, others, strict=True))):
            results = [self._selected(test, *each) for each in zip(options, results, strict=True)]
        return results

    def _selected(self, test: int, yes: Any, no: Any) -> Value:
        if yes is None or no is None:
            return None

        def select(*cells: int) -> int:
            return self.algebra.map("select", [test, *cells], yes.sort)

        return self.tensors.zip_cells(select, [yes, no], yes.sort)
