"""Guards: each fires on its planted case and is silent on good data."""

import ml_dtypes
import numpy as np
import pytest

from parity.builds.tree import to_host
from parity.values.vacuity import constant_leaves, dead_gradients, nothing_moved, same_buffers

DTYPES = [np.float32, ml_dtypes.bfloat16, np.int32]


def good(dtype=np.float32):
    return {"a": np.array([1, 2, 3], dtype), "b/c": np.array([[4, 5]], dtype)}


def where(findings):
    assert all(finding.cause == "a check that cannot fail" and finding.next_step for finding in findings)
    return [finding.where for finding in findings]


@pytest.mark.parametrize("dtype", DTYPES)
def test_good_data_raises_no_guard(dtype):
    flat, moved = good(dtype), {path: array + array for path, array in good(dtype).items()}
    assert constant_leaves("batch", flat) == []
    assert dead_gradients(flat, ()) == []
    assert nothing_moved(flat, moved, ()) == []
    assert same_buffers(flat, moved) == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [0, 1])
def test_a_leaf_of_one_number_is_constant(dtype, number):
    flat = good() | {"segments": np.full((2, 3), number, dtype)}
    assert where(constant_leaves("batch", flat)) == ["batch segments"]
    assert f"all 6 entries are {number}" in constant_leaves("batch", flat)[0].candidate


def test_a_leaf_of_nothing_but_nan_is_constant():
    """Two twins that both return NaN are equal bit for bit."""
    flat = good() | {"logits": np.full((2, 2), np.nan, np.float32)}
    assert where(constant_leaves("values", flat)) == ["values logits"]


def test_a_scalar_is_not_called_constant():
    assert constant_leaves("batch", {"loss_scale": np.float32(3), "one": np.ones((1, 1))}) == []


def test_an_empty_set_is_vacuous():
    findings = constant_leaves("gradients", {})
    assert where(findings) == ["gradients"] and findings[0].candidate == "no leaf"


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_zeros_are_dead_unless_declared(dtype):
    flat = good(dtype) | {"layers/0/bias": np.zeros(3, dtype), "layers/1/bias": np.zeros(3, dtype)}
    assert where(dead_gradients(flat, ())) == ["layers/0/bias", "layers/1/bias"]
    assert where(dead_gradients(flat, ["*/1/bias"])) == ["layers/0/bias"]
    assert dead_gradients(flat, ["layers/*"]) == []


def test_a_gradient_of_negative_zeros_is_dead_and_one_with_an_entry_is_not():
    flat = {"x": -np.zeros(3, np.float32), "y": np.array([0, 0, 1e-30], np.float32)}
    assert where(dead_gradients(flat, ())) == ["x"]


def test_parameters_that_did_not_move_are_named_unless_declared():
    before = good()
    after = {"a": before["a"].copy(), "b/c": before["b/c"] + 1}
    assert where(nothing_moved(before, after, ())) == ["a"]
    assert nothing_moved(before, after, ["a"]) == []


def test_one_moved_bit_is_a_move():
    before = {"x": np.zeros(3, np.float32)}
    assert nothing_moved(before, {"x": -before["x"]}, ()) == []


def test_leaves_that_were_not_returned_are_not_guessed_at():
    assert nothing_moved(good(), {}, ()) == []


def test_one_buffer_on_both_sides_is_noticed_also_as_a_view():
    flat = good()
    views = {"a": flat["a"][::-1], "b/c": flat["b/c"].T}
    assert where(same_buffers(flat, flat)) == ["a", "b/c"]
    assert where(same_buffers(flat, views)) == ["a", "b/c"]
    assert same_buffers(flat, to_host(flat)) == []


def test_only_paths_of_both_sides_are_compared():
    flat = good()
    assert same_buffers(flat, {"other": flat["a"]}) == []
