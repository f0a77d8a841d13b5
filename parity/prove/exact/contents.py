"""Functions of a program prepared for the walk: without dead operations, with a number for each content."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from parity.ir.location import operation_source
from parity.ir.mlir import integers
from parity.ir.stablehlo import program as stablehlo
from parity.ir.stablehlo.functions import Functions
from parity.ir.stablehlo.signatures import mesh_axes
from parity.prove.exact.terms import RefusalError

SHARDING = "sdy.sharding"
"""The attribute that holds the shardings of results."""
NAMING = frozenset({"sdy.manual_computation", "stablehlo.all_gather", "stablehlo.all_reduce"})
"""Operations whose handlers look up a mesh by its symbol."""


Contents = dict[Hashable, int]
"""Numbers for the computations of steps and blocks, without names and places: equal numbers mean equal contents."""


@dataclasses.dataclass(eq=False)
class Step:
    """One operation of a function.

    Args:
        read: the operation, as the program has it.
        sorts: sorts of the results.
        captured: slots of the enclosing blocks that its blocks read, in the order of their first appearance.
        content: a number for all of this except slots and source; equal numbers mean equal contents.
    """

    read: stablehlo.Op
    blocks: "tuple[Block, ...]"
    sorts: tuple[str, ...]
    captured: tuple[int, ...]
    content: int

    def __post_init__(self) -> None:
        self.name, self.operands, self.results = self.read.name, self.read.operands, tuple(self.read.results)
        self.shapes: tuple[tuple[int, ...], ...] = self.read.form.shapes
        self.attributes: Mapping[str, Any] = self.read.form.attributes
        self._location = self.read.source.location  # a later claim may read it when the module is gone

    @functools.cached_property
    def place(self) -> str:
        """The source line, with its function."""
        source = operation_source(self._location)
        return source.own_place if source.frames else "(no source line)"

    @property
    def element(self) -> str:
        """The element type of the first result, as MLIR writes it."""
        return self.read.form.elements[0]

    def dims(self, name: str) -> tuple[int, ...]:
        """Returns an attribute that lists integers; empty if it is absent."""
        return integers(self.attributes.get(name))

    def text(self, name: str) -> str:
        """Returns an attribute as MLIR prints it; empty if it is absent."""
        return str(self.attributes.get(name, ""))


@dataclasses.dataclass(eq=False)
class Block:
    """A region: parameters first among its values; values of enclosing regions keep their slots.

    Args:
        steps: in order, without dead ones.
        captured: slots of the enclosing blocks that it reads, in the order of their first appearance.
        content: a number for all of this, with slots numbered in that order.
    """

    parameters: tuple[int, ...]
    steps: list[Step]
    outputs: tuple[int, ...]
    captured: tuple[int, ...]
    content: int


class WalkedFunctions:
    """The functions of a module, prepared when first called.

    Args:
        functions: read without shardings.
        contents: shared with other programs.

    Attributes:
        results: names of the results of ``@main``, if some have none: these are dead.
        meshes: ``{name: ((axis, size), ...)}``.
    """

    results: Sequence[str] = ()

    def __init__(self, functions: Functions, contents: Contents, sort_of: Callable[[str], str]):
        self._functions, self._contents, self._sort_of = functions, contents, sort_of
        for name, text in functions.signatures.meshes.items():
            if "device_ids" in text:
                raise RefusalError(f"mesh {name}: got devices in an order of their own")
        self.meshes = {name: mesh_axes(text) for name, text in functions.signatures.meshes.items()}
        self._walked: dict[str, tuple[Block, int]] = {}

    def function(self, name: str) -> tuple[Block, int]:
        """Returns a function and its number of slots."""
        if name not in self._walked:
            function = self._functions[name]
            body = function.body
            if name == "main" and not all(self.results):
                named = itertools.compress(body.outputs, self.results)
                body = dataclasses.replace(body, outputs=tuple(named))
            self._walked[name] = self._block(body), function.slots
        return self._walked[name]

    def _number(self, content: Hashable) -> int:
        return self._contents.setdefault(content, len(self._contents))

    def _block(self, read: stablehlo.Region) -> Block:
        used, steps = set(read.outputs), []
        for each in reversed(read.ops):
            if each.effect or not used.isdisjoint(each.results):
                step = self._step(each)
                used |= {*step.operands, *step.captured}
                steps.append(step)
        steps.reverse()
        numbers: dict[int, int] = {}
        made = {*read.parameters}.union(*[step.results for step in steps])

        def numbered(slots: Iterable[int]) -> tuple[int, ...]:
            return tuple([numbers.setdefault(slot, len(numbers)) for slot in slots])

        wired = [
            (step.content, *map(numbered, (step.operands, step.captured, step.results))) for step in steps
        ]
        content = self._number((numbered(read.parameters), tuple(wired), numbered(read.outputs)))
        captured = tuple([slot for slot in numbers if slot not in made])
        return Block(read.parameters, steps, read.outputs, captured, content)

    def _step(self, read: stablehlo.Op) -> Step:
        blocks = tuple([self._block(each) for each in read.regions])
        sorts = tuple([self._sort_of(element) for element in read.form.elements])
        captured = tuple(dict.fromkeys(slot for block in blocks for slot in block.captured))
        return Step(read, blocks, sorts, captured, self._content(read, blocks, captured))

    def _content(self, read: stablehlo.Op, blocks: tuple[Block, ...], captured: tuple[int, ...]) -> int:
        """Returns a number for the computation of an operation, including the bodies that its word only names."""
        form, named = read.form, ()
        if form.symbols:
            return self._number(object())  # equal to no other
        if read.callee:
            named = self.function(read.callee)[0].content
        elif form.name in NAMING:
            texts = tuple([str(value) for name, value in form.attributes.items() if name != SHARDING])
            named = (texts, tuple(sorted(self.meshes.items())))
        inner = tuple([(block.content, tuple(map(captured.index, block.captured))) for block in blocks])
        return self._number((form.word, inner, named))
