"""Loops against layers, and moved weights, with separate rounding of each operation: equal and unequal programs."""

import dataclasses
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.builds.weights.transforms import Identity, Stack
from parity.prove.exact import Link, Relation

sys.path.append(str(pathlib.Path(__file__).parent))

from rounding_samples import (  # pyright: ignore[reportMissingImports]
    FLAT,
    LAYERS,
    MOVED,
    NEAR,
    OUT,
    PLAIN,
    ROWS,
    SHAPES,
    WIDTH,
    claim,
    flattened,
    layer,
    layers_against_scan,
    moved,
    remat,
    scanned,
    written,
)


@pytest.fixture(autouse=True)
def as_people_write():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "gradient"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (written(), scanned()),
        (written(), scanned(unroll=2)),
        (written(), scanned(unroll=True)),
        (written(), scanned(remat(layer))),
        (written(remat(layer)), scanned(remat(layer))),
        (written(jax.checkpoint(layer)), scanned(jax.checkpoint(layer))),
        (written(), scanned(jax.jit(layer))),
    ],
    ids=[
        "scan",
        "unrolled by two",
        "all unrolled",
        "remat in the loop",
        "remat on both",
        "barriers",
        "calls",
    ],
)
def test_layers_are_the_iterations_of_a_scan(left, right, backward):
    found = layers_against_scan(left, right, backward=backward)
    assert found.proved, found
    assert found.assumptions == ()


@pytest.mark.long
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "gradient"])
def test_functions_of_elements_may_have_another_shape(backward):
    assert layers_against_scan(written(), scanned(flattened), backward=backward).proved
    turned = scanned(lambda x, w, b: flattened(x.reshape(WIDTH, ROWS).T, w, b))
    assert not layers_against_scan(written(), turned, backward=backward).proved


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16], ids=str)
def test_in_narrow_floats_too(dtype):
    assert layers_against_scan(written(), scanned(), backward=True, dtype=dtype).proved


@pytest.mark.slow
@pytest.mark.parametrize("name", NEAR)
def test_near_misses_are_not_equal(name):
    left, right = NEAR[name]
    for backward in (False, True):
        found = layers_against_scan(left, right, backward=backward)
        assert not found.proved
        assert found.difference or found.refusal


@pytest.mark.parametrize("added", [0.0, 1e-30])
def test_only_an_added_zero_is_left_out(added):
    right = scanned(lambda x, w, b: layer(x, w, b) + jax.lax.optimization_barrier(jnp.float32(added)))
    assert layers_against_scan(written(), right).proved is (added == 0)


@pytest.mark.long
def test_each_near_miss_occurs_alone():
    """Else it could be refused for a reason other than the one in its name."""
    for name, (left, right) in NEAR.items():
        flat = [SHAPES[each[0]] for each in FLAT]
        for function, names, shapes in (
            (left, ["x", *FLAT], [SHAPES["x"], *flat]),
            (right, ["x", "w", "b"], [SHAPES["x"], *((LAYERS, *SHAPES[leaf]) for leaf in "wb")]),
        ):
            same = [Link(reference=(each,), candidate=(each,)) for each in names]
            relation = Relation(arguments=same, results=[OUT])
            found = claim(function, function, relation=relation, given=((names, shapes), (names, shapes)))
            assert found.proved, (name, found)


def test_dtypes_are_separate_sorts():
    given = ((["x"], [(3,)]), (["x"], [(3,)]))
    for left, right in (
        (jnp.float32, jnp.bfloat16),
        (jnp.float16, jnp.bfloat16),
        (jnp.float32, jnp.float64),
    ):
        with jax.enable_x64(True):
            found = claim(
                jnp.sin,
                jnp.sin,
                relation=PLAIN,
                given=given,
                dtype={"reference": left, "candidate": right},
            )
        assert not found.proved


@pytest.mark.parametrize("name", MOVED)
def test_weights_that_the_map_moves(name):
    case = MOVED[name]
    found = moved(case, case.right)
    assert found.proved, found
    assert not moved(case, case.near).proved


@pytest.mark.parametrize("name", ["transposed", "contracted along the other axis"])
def test_a_map_that_forgets_to_transpose(name):
    case = dataclasses.replace(MOVED[name], reference=((6, 6),), candidate=((6, 6),))
    assert moved(case, case.right).proved
    assert not moved(case, case.right, transform=Identity()).proved


def test_a_grid_counted_the_other_way():
    case = MOVED["stacked as a grid"]
    assert not moved(case, case.right, transform=Stack(0, 4)).proved


def test_unknown_names_are_refused():
    given = ((["x"], [(3,)]), (["x"], [(3,)]))
    loop = lambda x: jax.lax.while_loop(lambda x: x[0] < 3, lambda x: x + 1, x)  # noqa: E731
    found = claim(loop, loop, relation=PLAIN, given=given)
    assert "depends on the inputs" in found.refusal
    called = lambda x: jax.pure_callback(np.sin, x, x)  # noqa: E731
    found = claim(called, called, relation=PLAIN, given=given)
    assert found.refusal
