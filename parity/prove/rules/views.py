"""Views: data movement as one function from places of the result to places of its source.

A place is a position in row-major order. A view splits the result's place into digits, outermost first, and adds up an
offset and, for each digit, digit times stride. A reshape does not change places, so it changes no view. With its digits
merged as far as possible, a function has one view, regardless of how it was written.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

Factors = tuple[tuple[int, int], ...]
"""(size, stride) of each digit, outermost first."""
_Groups = list[list[tuple[int, int]]]


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """Elements of a source, in some order.

    Args:
        source: the number of the source.
        size: number of elements of the source.
        offset: place of the first element.
        factors: the digits, merged.
    """

    source: int
    size: int
    offset: int
    factors: Factors

    @property
    def count(self) -> int:
        """The number of elements of the view."""
        return math.prod(size for size, _ in self.factors)

    @property
    def is_whole(self) -> bool:
        """True if it is the whole source in its order."""
        return self.offset == 0 and self.factors == _straight(self.size)

    @property
    def is_straight(self) -> bool:
        """True if its elements have the order that they have in the source."""
        strides = [stride for _, stride in self.factors]
        return strides == sorted(strides, reverse=True)

    @property
    def is_splat(self) -> bool:
        """True if all its elements are one element of the source."""
        return all(stride == 0 for _, stride in self.factors)

    @property
    def repeats(self) -> bool:
        """True if it has an element of the source more than once; compilers sum up such a view by a product."""
        return any(stride == 0 for _, stride in self.factors)

    def places(self) -> np.ndarray:
        """Returns the places in the source."""
        found = np.full((1,), self.offset, np.int64)
        for size, stride in self.factors:
            found = (found[:, None] + np.arange(size) * stride).reshape(-1)
        return found

    def moved(self, groups: Sequence[Sequence[tuple[int, int]]], offset: int | None = None) -> "View":
        """Returns a view of the same source with other digits."""
        start = self.offset if offset is None else offset
        return View(self.source, self.size, start, merged(itertools.chain.from_iterable(groups)))

    def transposed(self, shape: Sequence[int], order: Sequence[int]) -> "View | None":
        """Returns the view with its axes in another order; None if the digits do not fall on the axes."""
        groups = cut(self.factors, shape)
        return None if groups is None else self.moved([groups[axis] for axis in order])

    def broadcast(self, shape: Sequence[int], axes: Sequence[int], target: Sequence[int]) -> "View | None":
        """Returns the view repeated: axis k of ``shape`` becomes axis ``axes[k]`` of ``target``."""
        groups = cut(self.factors, shape)
        if groups is None:
            return None
        made: _Groups = [[(size, 0)] for size in target]
        for axis, place in enumerate(axes):
            if shape[axis] == target[place]:
                made[place] = groups[axis]
        return self.moved(made)

    def sliced(
        self, shape: Sequence[int], starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]
    ) -> "View | None":
        """Returns part of the view; None if the digits of an axis do not allow it."""
        groups = cut(self.factors, shape)
        if groups is None:
            return None
        offset = self.offset
        for axis, (start, limit, step) in enumerate(zip(starts, limits, steps, strict=True)):
            if (start, limit, step) == (0, shape[axis], 1):
                continue
            found = _sliced_digits(groups[axis], start, limit, step)
            if found is None:
                return None
            more, groups[axis] = found
            offset += more
        return self.moved(groups, offset)


def whole(source: int, size: int) -> View:
    """Returns a source of some size as a view of itself."""
    return View(source, size, 0, _straight(size))


def _straight(size: int) -> Factors:
    return ((size, 1),) if size > 1 else ()


def merged(factors: Iterable[tuple[int, int]]) -> Factors:
    """Returns digits without those of size one, and with contiguous neighbours merged."""
    done: list[tuple[int, int]] = []
    for size, stride in factors:
        if size == 1:
            continue
        if done and done[-1][1] == size * stride:
            done[-1] = (done[-1][0] * size, stride)
        else:
            done.append((size, stride))
    return tuple(done)


def cut(factors: Factors, shape: Sequence[int]) -> _Groups | None:
    """Returns the digits of each axis; None if a digit crosses the border of two axes."""
    rest = list(reversed(factors))
    groups: _Groups = []
    for need in shape:
        group: list[tuple[int, int]] = []
        while need > 1:
            size, stride = rest.pop()
            if need % size == 0:
                group.append((size, stride))
                need //= size
            elif size % need == 0:
                group.append((need, stride * (size // need)))
                rest.append((size // need, stride))
                need = 1
            else:
                return None
        groups.append(group)
    return groups


def refined(views: Sequence[View]) -> list[tuple[int, tuple[int, ...]]] | None:
    """Returns (size, stride in each view) of digits that all views share; None if there are none."""
    borders: set[int] = set()
    for view in views:
        borders.update(itertools.accumulate((size for size, _ in view.factors), lambda a, b: a * b))
    ordered = sorted(borders)
    sizes = []
    for before, after in itertools.pairwise([1, *ordered]):
        if after % before:
            return None
        sizes.append(after // before)
    columns = []
    for view in views:
        groups = cut(view.factors, sizes)
        if groups is None or any(len(group) != 1 for group in groups):
            return None
        columns.append([group[0][1] for group in groups])
    return [(size, tuple(strides)) for size, *strides in zip(sizes, *columns, strict=True)]


def compose(outer: View, inner: View) -> View | None:
    """Returns the view ``outer`` of the view ``inner``; None unless one is whole or ``inner`` is a splat."""
    if inner.is_whole:
        return View(inner.source, inner.size, outer.offset, outer.factors)
    if outer.is_whole:
        return inner
    if inner.is_splat:
        return View(inner.source, inner.size, inner.offset, merged((size, 0) for size, _ in outer.factors))
    return None


def _sliced_digits(
    group: list[tuple[int, int]], start: int, limit: int, step: int
) -> tuple[int, list[tuple[int, int]]] | None:
    """Returns the increase of the offset by a slice, and the remaining digits; None if they do not allow it."""
    count = -(-(limit - start) // step)
    if not group:  # an axis of size one
        return 0, []
    (_, stride), *rest = group
    inside = math.prod(size for size, _ in rest)
    if not rest:
        return start * stride, [(count, stride * step)]
    first, last = start // inside, (start + (count - 1) * step) // inside
    if first == last:
        found = _sliced_digits(rest, start % inside, start % inside + (count - 1) * step + 1, step)
        return None if found is None else (found[0] + first * stride, found[1])
    if step == 1 and start % inside == 0 and limit % inside == 0:
        return first * stride, [(limit // inside - first, stride), *rest]
    return None
