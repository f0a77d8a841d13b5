"""Correspondence of the arguments and results of both sides, as data of the pair."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.builds.weights.transforms import Identity, Split, Unstack
from parity.prove.exact.operations import cut, join, part
from parity.prove.exact.tensors import Tensor, Tensors
from parity.prove.exact.terms import RefusalError


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


def atom(
    tensors: Tensors, name: str, shape: tuple[int, ...], sort: str, split_axes: Sequence[int] = ()
) -> Tensor:
    """Returns an input: a term that represents any value."""
    axes = [(dim, size) for dim, size in enumerate(shape) if size > 1]
    tensors.terms.origin = None
    x = tensors.uniform(tensors.terms.leaf("input", name, axes, sort), shape, sort)
    for dim in split_axes:
        x = tensors.split(x, dim)
    return x


def carry(tensors: Tensors, transform: Any, arrays: Sequence[Tensor]) -> list[Tensor]:
    """Returns the result of a transform on tensors."""
    shape = arrays[0].shape
    match transform:
        case Unstack(axis, number):
            return [part(tensors, arrays[0], axis % len(shape), index) for index in range(number)]
        case Split(axis, sizes):
            ends = itertools.accumulate(sizes)
            bounds = [(end - size, end, 1) for end, size in zip(ends, sizes, strict=True)]
            return [cut(tensors, arrays[0], axis % len(shape), each) for each in bounds]
    steps = transform.steps(shape)
    if steps is None:
        raise RefusalError(
            f"weight map: got {transform}, expected a transform of parity.builds.weights.transforms"
        )
    for name, numbers in steps:
        if name == "join":
            arrays = [join(tensors, arrays, *numbers)]
        elif name == "reshape":
            arrays = [tensors.reshape(x, numbers) for x in arrays]
        else:
            to = np.argsort(numbers).tolist()
            arrays = [tensors.moved(x, to, [x.shape[dim] for dim in numbers]) for x in arrays]
    return list(arrays)
