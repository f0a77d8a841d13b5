"""Transforms between leaves of the two sides: small, named, invertible."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

__all__ = ["Concat", "Identity", "Permute", "Reshape", "Split", "Stack", "StackGrid", "Transform", "Unstack"]

Arrays = Sequence[np.ndarray]
Shapes = list[tuple[int, ...]]
Step = tuple[str, tuple[int, ...]]
"""``("reshape", shape)`` or ``("transpose", order)`` of each array; ``("join", (axis,))`` of all."""


class Transform:
    """Maps the arrays of the reference leaves to the arrays of the candidate leaves, and back.

    A subclass defines `apply` with the functions of `_numpy`, so that `shapes` can trace it.

    Attributes:
        splits: True if it splits one leaf of the reference.
        words: its name, with its fields in braces.
    """

    splits = False
    words = ""

    def __str__(self) -> str:
        return self.words.format(**vars(self)) or repr(self)

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        """Returns the candidate's arrays for the reference's."""
        raise NotImplementedError

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        """Returns the reference's arrays for the candidate's; the inverse of `apply`."""
        raise NotImplementedError

    def shapes(self, shapes: Shapes) -> Shapes:
        """Returns the shapes of the result of `apply` without computing it; raises ValueError if `apply` would."""
        try:
            arrays = jax.eval_shape(self.apply, [jax.ShapeDtypeStruct(shape, bool) for shape in shapes])
        except TypeError as error:
            raise ValueError(str(error)) from error
        return [array.shape for array in arrays]

    def axes(self, axes: Sequence[tuple]) -> list[tuple] | None:
        """Returns the candidate's logical axes for the reference's; None if they cannot be derived."""
        return None

    def steps(self, shape: tuple[int, ...]) -> tuple[Step, ...] | None:
        """Returns the steps that make the whole from its parts, the first of this shape; None if they are unknown."""
        return None


def _numpy(arrays: Arrays) -> Any:
    """Returns the NumPy of arrays: JAX's for those of a trace, of which only the shapes are known."""
    return jnp if any(isinstance(array, Tracer) for array in arrays) else np


@dataclasses.dataclass(frozen=True)
class Identity(Transform):
    """Leaves the array unchanged."""

    words = "identity"

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return list(arrays)

    invert = apply

    def axes(self, axes: Sequence[tuple]) -> list[tuple]:
        return list(axes)

    def steps(self, shape: tuple[int, ...]) -> tuple[Step, ...]:
        return ()


@dataclasses.dataclass(frozen=True)
class Permute(Transform):
    """Transposes dimensions: dimension i of the candidate is ``order[i]`` of the reference."""

    words = "transpose{order}"
    order: tuple[int, ...]

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return [_numpy(arrays).transpose(array, self.order) for array in arrays]

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        order = np.argsort([axis % len(self.order) for axis in self.order])
        return [np.transpose(array, order) for array in arrays]

    def axes(self, axes: Sequence[tuple]) -> list[tuple]:
        return [tuple(names[i] for i in self.order) for names in axes]

    def steps(self, shape: tuple[int, ...]) -> tuple[Step, ...]:
        return (("transpose", tuple(axis % len(shape) for axis in self.order)),)


@dataclasses.dataclass(frozen=True)
class Reshape(Transform):
    """Keeps the elements in row-major order and changes the shape; a reshaped dimension has no single name."""

    words = "reshape{reference}->{candidate}"
    reference: tuple[int, ...]
    candidate: tuple[int, ...]

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return [_numpy(arrays).reshape(array, self.candidate) for array in arrays]

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        return Reshape(self.candidate, self.reference).apply(arrays)

    def steps(self, shape: tuple[int, ...]) -> tuple[Step, ...]:
        return (("reshape", self.shapes([shape])[0]),)


@dataclasses.dataclass(frozen=True)
class _Layers(Transform):
    """``number`` leaves, stacked along ``axis`` on one side."""

    axis: int
    number: int

    def _stacked(self, arrays: Arrays) -> list[np.ndarray]:
        return [_numpy(arrays).stack(arrays, axis=self.axis)]

    def _single(self, arrays: Arrays) -> list[np.ndarray]:
        numpy = _numpy(arrays)
        return [numpy.asarray(part) for part in numpy.moveaxis(arrays[0], self.axis, 0)]

    def steps(self, shape: tuple[int, ...]) -> tuple[Step, ...]:
        axis = self.axis % (len(shape) + 1)
        return (("reshape", (*shape[:axis], 1, *shape[axis:])), ("join", (axis,)))


class Unstack(_Layers):
    """Splits one stacked leaf into ``number`` leaves along ``axis``."""

    words = "unstack {number} along axis {axis}"
    splits = True
    apply, invert = _Layers._single, _Layers._stacked

    def axes(self, axes: Sequence[tuple]) -> list[tuple]:
        at = self.axis % len(axes[0])
        return [axes[0][:at] + axes[0][at + 1 :]] * self.number


class Stack(_Layers):
    """Stacks ``number`` leaves along ``axis``; only the candidate names this axis."""

    words = "stack {number} along axis {axis}"
    apply, invert = _Layers._stacked, _Layers._single


@dataclasses.dataclass(frozen=True)
class StackGrid(Transform):
    """Stacks leaves into one whose leading dimensions, ``shape``, count them in row-major order."""

    words = "stack as {shape}"
    shape: tuple[int, ...]

    def apply(self, arrays: Arrays) -> list[np.ndarray]:
        return [_numpy(arrays).stack(arrays).reshape(*self.shape, *arrays[0].shape)]

    def invert(self, arrays: Arrays) -> list[np.ndarray]:
        return list(np.reshape(arrays[0], (math.prod(self.shape), *arrays[0].shape[len(self.shape) :])))

    def steps(self, shape: tuple[int, ...]) -> tuple[Step, ...]:
        return (("reshape", (1, *shape)), ("join", (0,)), ("reshape", (*self.shape, *shape)))


@dataclasses.dataclass(frozen=True)
class _Parts(Transform):
    """Leaves of ``sizes`` along ``axis``, one leaf on one side."""

    axis: int
    sizes: tuple[int, ...]

    def _split(self, arrays: Arrays) -> list[np.ndarray]:
        return _numpy(arrays).split(arrays[0], np.cumsum(self.sizes)[:-1], axis=self.axis)

    def _joined(self, arrays: Arrays) -> list[np.ndarray]:
        return [_numpy(arrays).concatenate(arrays, axis=self.axis)]

    def steps(self, shape: tuple[int, ...]) -> tuple[Step, ...]:
        return (("join", (self.axis % len(shape),)),)


class Split(_Parts):
    """Splits one leaf into parts of ``sizes`` along ``axis``."""

    words = "split {sizes} along axis {axis}"
    splits = True
    apply, invert = _Parts._split, _Parts._joined

    def axes(self, axes: Sequence[tuple]) -> list[tuple]:
        return [axes[0]] * len(self.sizes)


class Concat(_Parts):
    """Concatenates several leaves of ``sizes`` along ``axis``."""

    words = "concatenate {sizes} along axis {axis}"
    apply, invert = _Parts._joined, _Parts._split

    def axes(self, axes: Sequence[tuple]) -> list[tuple]:
        return [axes[0]]
