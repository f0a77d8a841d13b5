"""Transforms between leaves of the two sides: small, named, invertible."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

__all__ = ["Concat", "Identity", "Permute", "Reshape", "Split", "Stack", "StackGrid", "Transform", "Unstack"]

Arrays = Sequence[np.ndarray]
Shapes = list[tuple[int, ...]]


@runtime_checkable
class Transform(Protocol):
    """Maps the arrays of the reference leaves to the arrays of the candidate leaves, and back."""

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        """Returns the candidate's arrays for the reference's."""
        ...

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        """Returns the reference's arrays for the candidate's; the inverse of `apply`."""
        ...

    def shapes(self, shapes: Shapes) -> Shapes:
        """Returns the shapes of the result of `apply`; raises ValueError or IndexError if `apply` would."""
        ...

    def axes(self, axes: Sequence[tuple]) -> list[tuple] | None:
        """Returns the candidate's logical axes for the reference's; None if they cannot be derived."""
        ...


@dataclasses.dataclass(frozen=True)
class Identity:
    """Leaves the array unchanged."""

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return list(arrays)

    invert = apply

    def shapes(self, shapes: Shapes) -> Shapes:
        return shapes

    def axes(self, axes: Sequence[tuple]) -> list[tuple]:
        return list(axes)

    def __str__(self) -> str:
        return "identity"


@dataclasses.dataclass(frozen=True)
class Permute:
    """Transposes dimensions: dimension i of the candidate is ``order[i]`` of the reference."""

    order: tuple[int, ...]

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return [np.transpose(array, self.order) for array in arrays]

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        inverse = np.argsort([axis % len(self.order) for axis in self.order])
        return [np.transpose(array, inverse) for array in arrays]

    def shapes(self, shapes: Shapes) -> Shapes:
        if any(sorted(axis % len(self.order) for axis in self.order) != list(range(len(x))) for x in shapes):
            raise ValueError(f"got shapes {shapes} for axes {self.order}")
        return [tuple(shape[axis] for axis in self.order) for shape in shapes]

    def axes(self, axes: Sequence[tuple]) -> list[tuple]:
        return [tuple(names[i] for i in self.order) for names in axes]

    def __str__(self) -> str:
        return f"transpose{self.order}"


@dataclasses.dataclass(frozen=True)
class Reshape:
    """Keeps the elements in row-major order and changes the shape."""

    reference: tuple[int, ...]
    candidate: tuple[int, ...]

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return [np.reshape(array, self.candidate) for array in arrays]

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        return [np.reshape(array, self.reference) for array in arrays]

    def shapes(self, shapes: Shapes) -> Shapes:
        if any(math.prod(shape) != math.prod(self.candidate) for shape in shapes):
            raise ValueError(f"got shapes {shapes} to reshape to {self.candidate}")
        return [self.candidate for _ in shapes]

    def axes(self, axes: Sequence[tuple]) -> None:
        """Returns None: a reshaped dimension has no single name."""
        return

    def __str__(self) -> str:
        return f"reshape{self.reference}->{self.candidate}"


@dataclasses.dataclass(frozen=True)
class Unstack:
    """Splits one stacked leaf into ``number`` leaves along ``axis``."""

    axis: int
    number: int

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return [np.asarray(part) for part in np.moveaxis(arrays[0], self.axis, 0)]

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        return [np.stack(arrays, axis=self.axis)]

    def shapes(self, shapes: Shapes) -> Shapes:
        (shape,) = shapes
        return [tuple(np.delete(shape, self.axis).tolist())] * shape[self.axis]

    def axes(self, axes: Sequence[tuple]) -> list[tuple]:
        at = self.axis % len(axes[0])
        return [axes[0][:at] + axes[0][at + 1 :]] * self.number

    def __str__(self) -> str:
        return f"unstack {self.number} along axis {self.axis}"


@dataclasses.dataclass(frozen=True)
class Stack:
    """Stacks ``number`` leaves along ``axis``."""

    axis: int
    number: int

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return Unstack(self.axis, self.number).invert(arrays)

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        return Unstack(self.axis, self.number).apply(arrays)

    def shapes(self, shapes: Shapes) -> Shapes:
        return [_stacked(shapes, self.axis % (len(shapes[0]) + 1))]

    def axes(self, axes: Sequence[tuple]) -> None:
        """Returns None: only the candidate names the stacked axis."""
        return

    def __str__(self) -> str:
        return f"stack {self.number} along axis {self.axis}"


@dataclasses.dataclass(frozen=True)
class StackGrid:
    """Stacks leaves into one whose leading dimensions, ``shape``, count them in row-major order."""

    shape: tuple[int, ...]

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return [np.stack(arrays).reshape(*self.shape, *np.shape(arrays[0]))]

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        rest = np.shape(arrays[0])[len(self.shape) :]
        return list(np.reshape(arrays[0], (-1, *rest)))

    def shapes(self, shapes: Shapes) -> Shapes:
        count, *rest = _stacked(shapes, 0)
        if count != math.prod(self.shape):
            raise ValueError(f"got {count} arrays for a grid of {self.shape}")
        return [(*self.shape, *rest)]

    def axes(self, axes: Sequence[tuple]) -> None:
        """Returns None: only the candidate names the stacked axes."""
        return

    def __str__(self) -> str:
        return f"stack as {self.shape}"


@dataclasses.dataclass(frozen=True)
class Split:
    """Splits one leaf into parts of ``sizes`` along ``axis``."""

    axis: int
    sizes: tuple[int, ...]

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return np.split(arrays[0], np.cumsum(self.sizes)[:-1], axis=self.axis)

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        return [np.concatenate(arrays, axis=self.axis)]

    def shapes(self, shapes: Shapes) -> Shapes:
        (shape,) = shapes
        at, before = self.axis % len(shape), sum(self.sizes[:-1])
        lengths = [*self.sizes[:-1], max(shape[self.axis] - before, 0)]
        return [(*shape[:at], length, *shape[at + 1 :]) for length in lengths]

    def axes(self, axes: Sequence[tuple]) -> list[tuple]:
        return [axes[0]] * len(self.sizes)

    def __str__(self) -> str:
        return f"split {self.sizes} along axis {self.axis}"


@dataclasses.dataclass(frozen=True)
class Concat:
    """Concatenates several leaves of ``sizes`` along ``axis``."""

    axis: int
    sizes: tuple[int, ...]

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return Split(self.axis, self.sizes).invert(arrays)

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        return Split(self.axis, self.sizes).apply(arrays)

    def shapes(self, shapes: Shapes) -> Shapes:
        at = self.axis % len(shapes[0])
        _stacked([shape[:at] + shape[at + 1 :] for shape in shapes], 0)
        return [(*shapes[0][:at], sum(shape[at] for shape in shapes), *shapes[0][at + 1 :])]

    def axes(self, axes: Sequence[tuple]) -> list[tuple]:
        return [axes[0]]

    def __str__(self) -> str:
        return f"concatenate {self.sizes} along axis {self.axis}"


def _stacked(shapes: Shapes, axis: int) -> tuple[int, ...]:
    if len(set(shapes)) != 1:
        raise ValueError(f"got shapes {shapes}, expected equal ones")
    return (*shapes[0][:axis], len(shapes), *shapes[0][axis:])
