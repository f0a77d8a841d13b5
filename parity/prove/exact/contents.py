"""Operations of an inlined program as the walk sees them, with their contents."""

import dataclasses
import functools
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from parity.ir.location import inlined_source
from parity.ir.mlir import integers
from parity.ir.stablehlo.program import Op, Region

Contents = dict[Hashable, int]
"""Numbers for the computations of operations with regions, without names and places: equal numbers, equal contents."""


@dataclasses.dataclass(eq=False)
class Step:
    """One operation.

    Args:
        op: the operation, as the program has it.
        sorts: sorts of the results.
        content: equal for equal computations, apart from the values that they read.
        captured: values around it that its regions read, in the order of their first appearance.
    """

    op: Op
    sorts: tuple[str, ...]
    content: Hashable
    captured: tuple[int, ...]

    def __post_init__(self) -> None:
        self.name, self.operands, self.results = self.op.name, self.op.operands, self.op.results
        self.shapes: tuple[tuple[int, ...], ...] = self.op.form.shapes
        self.attributes: Mapping[str, Any] = self.op.form.attributes

    @functools.cached_property
    def place(self) -> str:
        """The source line, with its function."""
        source = inlined_source(self.op)
        return source.own_place if source.frames else "(no source line)"

    @property
    def element(self) -> str:
        """The element type of the first result, as MLIR writes it."""
        return self.op.form.elements[0]

    def dims(self, name: str) -> tuple[int, ...]:
        """Returns an attribute that lists integers; empty if it is absent."""
        return integers(self.attributes.get(name))

    def text(self, name: str) -> str:
        """Returns an attribute as MLIR prints it; empty if it is absent."""
        return str(self.attributes.get(name, ""))


def content_of(op: Op, contents: Contents) -> tuple[Hashable, tuple[int, ...]]:
    """Returns the content of an operation, and the values that its regions capture."""
    if not op.regions:
        return op.form.word, ()
    numbers: dict[int, int] = {}
    made: set[int] = set()

    def numbered(values: Iterable[int]) -> tuple[int, ...]:
        return tuple([numbers.setdefault(value, len(numbers)) for value in values])

    def written(region: Region) -> tuple:
        """Returns a region with its values numbered in the order of their first appearance."""
        made.update(region.parameters)
        steps: list[Any] = [numbered(region.parameters)]
        for each in region.ops:
            if each.live is not None:
                made.update(each.results)
                inner = tuple(map(written, each.regions))
                steps.append((each.form.word, numbered(each.operands), inner, numbered(each.results)))
        return (*steps, numbered(region.outputs))

    content = (op.form.word, tuple(map(written, op.regions)))
    captured = tuple([value for value in numbers if value not in made])
    return contents.setdefault(content, len(contents)), captured
