"""Sketches estimate the distance of arrays; the settings that a search keeps are minimal."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.bisect.config import minimal_part
from parity.compare.origin.sketch import distance, sketch

RNG = np.random.default_rng(0)
ARRAY = RNG.normal(size=(6, 35)).astype("float32")


def test_another_shape_of_equal_entries_is_no_difference_and_another_order_in_one_shape_is():
    square = ARRAY[:, :6]
    assert distance(sketch(ARRAY), sketch(ARRAY.reshape(3, 70))) == 0
    assert distance(sketch(ARRAY), sketch(ARRAY.T.copy())) == 0
    assert distance(sketch(ARRAY), sketch(2 * ARRAY.T)) > 0.3
    assert distance(sketch(square), sketch(square.T.copy())) > 0.3
    assert distance(sketch(ARRAY), sketch(ARRAY[::-1])) > 0.3


@pytest.mark.parametrize("relative", [1e-6, 1e-3, 0.3])
def test_the_distance_is_right_to_a_factor_of_two(relative):
    noise = RNG.normal(size=ARRAY.shape)
    moved = ARRAY + noise * relative * np.linalg.norm(ARRAY) / np.linalg.norm(noise)
    assert relative / 2 < distance(sketch(ARRAY.astype("float64")), sketch(moved)) < 2 * relative


def test_masks_do_not_hide_the_remaining_entries():
    masked, other = (np.where(np.arange(35) < 9, -1e9, array) for array in (ARRAY, 2 * ARRAY))
    assert distance(sketch(masked.astype("float32")), sketch(other.astype("float32"))) > 0.5
    elsewhere = np.where(np.arange(35) < 8, -np.inf, ARRAY).astype("float32")
    assert distance(sketch(masked.astype("float32")), sketch(elsewhere)) == np.inf


def test_kinds_are_not_compared():
    assert distance(sketch(np.arange(4)), sketch(np.arange(4.0))) == np.inf
    assert distance(sketch(np.arange(4)), sketch(np.arange(5))) == np.inf
    assert distance(sketch(np.zeros(4)), sketch(np.ones(4))) == np.inf


@pytest.mark.parametrize(
    ("value", "plain"),
    [(True, True), (7, True), (1.0, True), (0.37, False), (np.zeros(5), True), (np.arange(5), False)],
)
def test_uninformative_names_are_known(value, plain):
    assert sketch(jnp.asarray(value)).plain is plain


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_the_needed_parts_are_found(drawn):
    count, needed = drawn
    found = minimal_part(list(range(count)), lambda part: needed <= set(part))
    assert set(found) == needed


def test_the_part_is_one_minimal_if_parts_mask_each_other():
    def fails(part):
        return {1, 5} <= set(part) and (3 not in part or 7 in part)

    found = minimal_part(list(range(9)), fails)
    assert fails(found)
    assert not any(fails([each for each in found if each != one]) for one in found)
