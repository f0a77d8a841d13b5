"""Correspondence of the arguments and results of both sides, as data of the pair."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.builds.weights.transforms import (
    Concat,
    Identity,
    Permute,
    Reshape,
    Split,
    Stack,
    StackGrid,
    Unstack,
)
from parity.prove.exact.operations import cut, join, part
from parity.prove.exact.tensors import Tensor, Tensors
from parity.prove.exact.terms import RefusalError

__all__ = ["Link", "Relation", "atom", "carry"]

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """Names on both sides that correspond through a transform of `parity.builds.weights.transforms`.

    Args:
        reference, candidate: names of arguments or results.
        transform: from the reference's arrays to the candidate's.
    """

    reference: tuple[str, ...]
    candidate: tuple[str, ...]
    transform: Any = Identity()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relation:
    """Correspondence of two programs.

    Args:
        arguments: links of arguments; a link counts if both sides read it.
        results: links of results; all must hold.
        split_axes: dimensions of reference arguments that are split into their indices, such as the rows of a batch.
        ranges: minimum and maximum plus one of reference arguments that are integers; these are assumptions.
    """

    arguments: Sequence[Link]
    results: Sequence[Link]
    split_axes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)


def atom(tensors: Tensors, name: str, shape: Shape, sort: str, split_axes: Sequence[int] = ()) -> Tensor:
    """Returns an input: a term that represents any value."""
    axes = [(dim, size) for dim, size in enumerate(shape) if size > 1]
    tensors.terms.origin = None
    x = tensors.uniform(tensors.terms.input(name, axes, sort), shape, sort)
    for dim in split_axes:
        x = tensors.split(x, dim)
    return x


def splits(transform: Any) -> bool:
    """True if a transform splits one array, so that the parts are the inputs."""
    return isinstance(transform, Unstack | Split)


def carry(tensors: Tensors, transform: Any, arrays: Sequence[Tensor], *, back: bool = False) -> list[Tensor]:
    """Returns the result of a transform on tensors; with ``back`` of its inverse.

    Raises:
        RefusalError: the transform is not known.
    """
    if isinstance(transform, Identity):
        return list(arrays)
    if isinstance(transform, Stack | Unstack):
        together = isinstance(transform, Stack) != back
        if together:
            rank = len(arrays[0].shape) + 1
            return [_stacked(tensors, arrays, transform.axis % rank)]
        axis = transform.axis % len(arrays[0].shape)
        return [part(tensors, arrays[0], axis, index) for index in range(transform.number)]
    if isinstance(transform, StackGrid):
        if back:
            flat = (-1, *arrays[0].shape[len(transform.shape) :])
            count = int(np.prod(transform.shape))
            whole = tensors.reshape(arrays[0], (count, *flat[1:]))
            return [part(tensors, whole, 0, index) for index in range(count)]
        whole = _stacked(tensors, arrays, 0)
        return [tensors.reshape(whole, (*transform.shape, *arrays[0].shape))]
    if isinstance(transform, Split | Concat):
        if isinstance(transform, Concat) != back:
            return [join(tensors, arrays, transform.axis % len(arrays[0].shape))]
        return _cut_up(tensors, arrays[0], transform.axis, transform.sizes)
    if isinstance(transform, Permute):
        order = np.argsort(transform.order) if back else transform.order
        to = np.argsort(order).tolist()
        return [tensors.moved(x, to, [x.shape[dim] for dim in order]) for x in arrays]
    if isinstance(transform, Reshape):
        return [tensors.reshape(x, transform.reference if back else transform.candidate) for x in arrays]
    raise RefusalError(
        f"weight map: got {transform}, expected a transform of parity.builds.weights.transforms"
    )


def _stacked(tensors: Tensors, arrays: Sequence[Tensor], axis: int) -> Tensor:
    parts = []
    for x in arrays:
        shape = (*x.shape[:axis], 1, *x.shape[axis:])
        parts.append(tensors.moved(x, [dim + (dim >= axis) for dim in range(len(x.shape))], shape))
    return join(tensors, parts, axis)


def _cut_up(tensors: Tensors, x: Tensor, axis: int, sizes: Sequence[int]) -> list[Tensor]:
    found, start = [], 0
    for size in sizes:
        found.append(cut(tensors, x, axis % len(x.shape), (start, start + size, 1)))
        start += size
    return found
