"""Views against NumPy: after any chain of movements, a view shows the same elements, or returns None."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.prove.exact.scalars import widens
from parity.prove.rules.types import parse_array
from parity.prove.rules.views import View, compose, merged, refined, whole

SHAPES = ((2, 3, 4), (4, 6), (24,), (1, 8, 3), (2, 2, 2, 3), (6, 1, 4))


def sliced(view, shape, starts, limits):
    """Returns a part of a view that its digits allow."""
    found = view.sliced(shape, starts, limits, (1,) * len(shape))
    assert found is not None
    return found


def moved(view, data, draw):
    """Moves a view and an array in the same way and returns both; the view is None if it has no such form."""
    shape = data.shape
    kind = draw(st.sampled_from(("reshape", "transpose", "slice", "broadcast")))
    if kind == "reshape":
        shapes = [each for each in (*SHAPES, (data.size,)) if math.prod(each) == data.size]
        return view, data.reshape(draw(st.sampled_from(shapes)))
    if kind == "transpose":
        order = draw(st.permutations(range(data.ndim)))
        return view.transposed(shape, order), data.transpose(order)
    if kind == "broadcast":
        target = (2, *(3 if size == 1 else size for size in shape))
        axes = range(1, len(shape) + 1)
        return view.broadcast(shape, axes, target), np.broadcast_to(data[None], target)
    starts = [draw(st.integers(0, size - 1)) for size in shape]
    limits = [draw(st.integers(start + 1, size)) for start, size in zip(starts, shape, strict=True)]
    steps = [draw(st.integers(1, 3)) for _ in shape]
    cuts = tuple(itertools.starmap(slice, zip(starts, limits, steps, strict=True)))
    return view.sliced(shape, starts, limits, steps), data[cuts]


@pytest.mark.long
@settings(max_examples=600, deadline=None, derandomize=True)
@given(data=st.data(), shape=st.sampled_from(SHAPES))
def test_a_view_equals_numpy(data, shape):
    source = np.arange(math.prod(shape))
    view, array = whole(7, source.size), source.reshape(shape)
    for _ in range(data.draw(st.integers(1, 5))):
        view, array = moved(view, array, data.draw)
        if view is None:
            return
        assert view.count == array.size
        assert np.array_equal(source[view.places()], array.reshape(-1))


@pytest.mark.long
@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data(), shape=st.sampled_from(SHAPES))
def test_one_function_has_one_view(data, shape):
    """Two chains with the same result have equal views, so that they get one number."""
    views = []
    for _ in range(2):
        view, array = whole(7, math.prod(shape)), np.arange(math.prod(shape)).reshape(shape)
        for _ in range(data.draw(st.integers(1, 3))):
            view, array = moved(view, array, data.draw)
            if view is None:
                return
        views.append(view)
    same = views[0].count == views[1].count and np.array_equal(*[view.places() for view in views])
    assert same == (views[0] == views[1])


def test_digits_that_do_not_fall_on_axes_are_refused():
    turned = whole(7, 6).transposed((2, 3), (1, 0))
    assert turned is not None and turned.transposed((2, 3), (1, 0)) is None
    assert View(7, 24, 0, ((4, 6), (2, 1))).sliced((8,), (1,), (6,), (1,)) is None


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data())
def test_shared_digits_show_the_same_places(data):
    views = []
    for number in range(2):
        view, array = whole(number, 24), np.arange(24).reshape(2, 3, 4)
        for axes in data.draw(st.lists(st.permutations(range(3)), max_size=1)):
            view, array = view.transposed(array.shape, axes), array.transpose(axes)
        views.append(view)
    found = refined(views)
    if found is not None:
        for column, view in enumerate(views):
            again = View(
                view.source, 24, view.offset, merged((size, strides[column]) for size, strides in found)
            )
            assert again == view


def test_a_view_of_a_view():
    part = sliced(whole(7, 12), (3, 4), (1, 0), (3, 4))
    turned = whole(9, 8).transposed((2, 4), (1, 0))
    assert turned is not None
    assert compose(whole(9, 8), part) == part
    assert compose(turned, whole(7, 8)) == View(7, 8, 0, turned.factors)
    assert compose(turned, part) is None
    splat = View(7, 12, 5, ((8, 0),))
    shown = compose(turned, splat)
    assert shown is not None and np.array_equal(shown.places(), np.full(8, 5))


@pytest.mark.parametrize(
    ("narrow", "wide", "kept"),
    [
        ("bf16", "f32", True),
        ("f16", "f32", True),
        ("f32", "f64", True),
        ("bf16", "f16", False),
        ("f16", "bf16", False),
        ("f32", "bf16", False),
        ("i32", "f32", False),
        ("f32", "i64", False),
    ],
)
def test_widening(narrow, wide, kept):
    assert widens(narrow, wide) == kept


@pytest.mark.parametrize(
    "text",
    ["tensor<?x3xf32>", "tensor<0x3xf32>", "tensor<3xf32, #sparse>", "!stablehlo.token", "tensor<4x!q>"],
)
def test_values_that_are_no_plain_arrays_are_kept(text):
    assert parse_array(text) is None
