"""Transforms: their effect on known arrays, and correct inverse and description on any."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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

few = settings(max_examples=150, deadline=None, database=None, derandomize=True)

DTYPES = tuple(np.dtype(name) for name in ("float32", "float64", "int32", "uint32", "bool")) + (
    np.dtype(ml_dtypes.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn),
)
SIZES = st.permutations((1, 2, 3, 5, 7)).map(tuple)
NAMES = ("embed", "mlp", "heads", None, "vocab")


def filled(shape, dtype, seed):
    """Random bits of any dtype, NaNs and signed zeros included."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(seed).integers(0, 2 if dtype.kind == "b" else 256, size, dtype=np.uint8)
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape)


@st.composite
def problems(draw):
    """A transform with reference arrays and their logical axes that it fits."""
    shape, dtype = draw(SIZES)[: draw(st.integers(1, 4))], draw(st.sampled_from(DTYPES))
    kind = draw(st.sampled_from((Identity, Permute, Reshape, Unstack, Stack, Split, Concat)))
    rank, seed = len(shape), draw(st.integers(0, 999))
    axis = draw(st.integers(-rank, rank - 1))
    cuts = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    shapes, transform = [shape], Identity()
    if kind is Permute:
        order = draw(st.permutations(range(rank)))
        transform = Permute(tuple(i - rank * draw(st.integers(0, 1)) for i in order))
    elif kind is Reshape:
        transform = Reshape(shape, draw(st.sampled_from(((int(np.prod(shape)),), (*shape[::-1], 1)))))
    elif kind is Unstack:
        transform = Unstack(axis, shape[axis])
    elif kind is Stack:
        transform, shapes = Stack(axis, len(cuts)), [shape] * len(cuts)
    elif kind in (Split, Concat):
        at = axis % rank
        parts = [(*shape[:at], size, *shape[at + 1 :]) for size in cuts]
        shapes = parts if kind is Concat else [(*shape[:at], sum(cuts), *shape[at + 1 :])]
        transform = kind(axis, cuts)
    return transform, [filled(shape, dtype, seed + i) for i, shape in enumerate(shapes)]


@few
@given(problems())
def test_every_transform_is_undone_bit_for_bit(problem):
    transform, arrays = problem
    there = transform.apply(arrays)
    back = transform.invert(there)
    assert len(back) == len(arrays)
    for array, again in zip(arrays, back, strict=True):
        assert (again.shape, again.dtype) == (array.shape, array.dtype)
        assert again.tobytes() == array.tobytes()
    assert all(isinstance(array, np.ndarray) for array in (*there, *back))


@pytest.mark.slow
@few
@given(problems())
def test_axes_name_the_dimensions_that_apply_makes(problem):
    """Sizes are pairwise distinct except for 1s and cuts, so a name on the wrong dimension has a wrong size."""
    transform, arrays = problem
    names = [NAMES[: array.ndim] for array in arrays]
    axes, there = transform.axes(names), transform.apply(arrays)
    if isinstance(transform, Reshape | Stack):
        assert axes is None
        return
    assert [len(found) for found in axes] == [array.ndim for array in there]
    cut = transform.axis % arrays[0].ndim if isinstance(transform, Split | Concat) else None
    size_of = dict(zip(names[0], arrays[0].shape, strict=True))
    for found, array in zip(axes, there, strict=True):
        for name, size in zip(found, array.shape, strict=True):
            assert size == size_of[name] or (cut is not None and names[0][cut] == name)


@pytest.mark.slow
@few
@given(problems())
def test_no_transform_writes_to_its_arguments(problem):
    transform, arrays = problem
    before = [array.tobytes() for array in arrays]
    transform.invert(transform.apply(arrays))
    assert [array.tobytes() for array in arrays] == before


def test_permute_follows_numpy():
    x = np.arange(24).reshape(2, 3, 4)
    order = Permute((2, 0, 1))
    assert order.apply([x])[0].shape == (4, 2, 3)
    assert order.apply([x])[0][3, 1, 2] == x[1, 2, 3]
    assert order.axes([("a", "b", "c")]) == [("c", "a", "b")]


@pytest.mark.parametrize("order", [(0, -1, 1), (-1, 0, 1), (1, -1, 0)])
def test_permute_by_negative_axes_is_undone(order):
    x = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal(Permute(order).invert(Permute(order).apply([x]))[0], x)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_unstack_cuts_along_its_axis_and_drops_its_name(axis):
    x = np.arange(24).reshape(2, 3, 4)
    cut = Unstack(axis, x.shape[axis])
    for index, part in enumerate(cut.apply([x])):
        np.testing.assert_array_equal(part, np.take(x, index, axis=axis))
    kept = [name for at, name in enumerate("abc") if at != axis % 3]
    assert cut.axes([("a", "b", "c")]) == [tuple(kept)] * x.shape[axis]


def test_unstacking_a_vector_gives_arrays_and_not_scalars():
    parts = Unstack(0, 2).apply([np.array([1.5, 2.5], ml_dtypes.bfloat16)])
    assert [(type(part), part.shape, str(part.dtype)) for part in parts] == [(np.ndarray, (), "bfloat16")] * 2


def test_split_cuts_a_fused_kernel_into_uneven_parts():
    fused = np.arange(2 * 9).reshape(2, 9)
    q, k, v = Split(1, (5, 2, 2)).apply([fused])
    np.testing.assert_array_equal(q, fused[:, :5])
    np.testing.assert_array_equal(k, fused[:, 5:7])
    np.testing.assert_array_equal(v, fused[:, 7:])
    np.testing.assert_array_equal(Concat(1, (5, 2, 2)).apply([q, k, v])[0], fused)


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (Identity(), "identity"),
        (Permute((1, 0)), "transpose(1, 0)"),
        (Reshape((6,), (2, 3)), "reshape(6,)->(2, 3)"),
        (Unstack(1, 4), "unstack 4 along axis 1"),
        (Stack(0, 4), "stack 4 along axis 0"),
        (Split(1, (2, 3)), "split (2, 3) along axis 1"),
        (Concat(1, (2, 3)), "concatenate (2, 3) along axis 1"),
    ],
)
def test_a_transform_describes_itself(transform, text):
    assert str(transform) == text


@pytest.mark.slow
@few
@given(data=st.data())
def test_shapes_are_those_of_the_result_of_apply(data):
    number, rows, columns = (data.draw(st.integers(1, 3)) for _ in range(3))
    shape = (rows, columns, 4)
    axis = data.draw(st.integers(-3, 2))
    size = shape[axis]
    cut = data.draw(st.integers(0, size))
    transform, shapes = data.draw(
        st.sampled_from(
            [
                (Identity(), [shape]),
                (Permute(tuple(data.draw(st.permutations([0, 1, -1])))), [shape]),
                (Reshape(shape, (4, columns * rows)), [shape]),
                (Reshape(shape, (7, 3)), [shape]),
                (Unstack(axis, size), [shape]),
                (Stack(data.draw(st.integers(-4, 3)), number), [shape] * number),
                (Stack(0, 2), [shape, (9, 9)]),
                (StackGrid((2, number)), [shape] * 2 * number),
                (StackGrid((2, number)), [shape] * number),
                (Split(axis, (cut, size - cut)), [shape]),
                (Concat(axis, (size, size)), [shape, shape]),
                (Concat(axis, (size, size)), [shape, (9, 9, 9)]),
            ]
        )
    )
    try:
        truth = [x.shape for x in transform.apply([np.zeros(each) for each in shapes])]
    except (ValueError, IndexError):
        with pytest.raises((ValueError, IndexError)):
            transform.shapes(shapes)
    else:
        assert transform.shapes(shapes) == truth


def test_shapes_of_published_sizes_take_no_memory():
    assert StackGrid((20, 4)).shapes([(8192, 28672)] * 80) == [(20, 4, 8192, 28672)]
