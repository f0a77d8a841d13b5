"""The ladder: the definition of equal bits, the rung of a leaf, and its sentence."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.values.ladder import (
    ARBITRATION,
    FARTHEST,
    FLOOR_FACTOR,
    Absent,
    Judge,
    climb,
    deviation,
    rung_beyond,
)
from parity.values.noise import measure_floor
from parity.verdicts import Requirement, Verdict

few = settings(max_examples=150, deadline=None, database=None, derandomize=True)
BF16 = np.dtype(ml_dtypes.bfloat16)
numbers = st.floats(-8.0, 8.0, width=32).filter(lambda number: abs(number) > 0.1)


def never():
    raise AssertionError("a lower rung was measured though the one above held")


def judge(floor=None, exact=None, require=Verdict.ARBITRATED):
    required = Requirement.of(require, "require")
    return Judge(floor=lambda: floor or {}, exact=None if exact is None else lambda: exact, required=required)


def f32(*numbers):
    return np.array(numbers, np.float32)


def bits(*words):
    return np.array(words, np.uint32).view(np.float32)


def one(reference, candidate, **kwargs):
    return climb({"x": reference}, {"x": candidate}, judge(**kwargs))


def random_leaf(seed, dtype):
    raw = np.random.default_rng(seed).integers(0, 256, 24, dtype=np.uint8).tobytes()
    return np.frombuffer(raw, dtype).copy()


@few
@given(
    st.integers(0, 9_999), st.sampled_from([np.float32, np.float64, np.int32, ml_dtypes.bfloat16]), st.data()
)
def test_any_flipped_bit_is_seen_and_none_is_imagined(seed, dtype, data):
    leaf = random_leaf(seed, dtype)
    lower = Judge(floor=never, exact=never)
    assert climb({"x": leaf}, {"x": leaf.copy()}, lower).verdict is Verdict.BITWISE
    flipped = leaf.copy()
    at = data.draw(st.integers(0, 24 * 8 - 1))
    flipped.view(np.uint8)[at // 8] ^= 1 << at % 8
    found = deviation("x", leaf, flipped)
    assert found is not None and found.worst == (at // 8 // leaf.itemsize,)


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (f32(1.0, 0.0), f32(1.0, -0.0)),
        (bits(0x3F800000, 0x7FC00000), bits(0x3F800000, 0x7FC00001)),
        (bits(0x7FC00000, 0x7FC00000), bits(0x7FC00000, 0xFFC00000)),
        (f32(np.inf, 1.0), f32(np.inf, 1.5)),
        (f32(1.0, np.nan), f32(1.5, 1.0)),
        (f32(0.0, 0.0), f32(1.0, 2.0)),
    ],
    ids=["signed zero", "NaN payload", "NaN sign", "beside an equal infinity", "NaN", "zeros"],
)
def test_the_worst_index_points_at_bits_that_differ(reference, candidate):
    found = deviation("x", reference, candidate)
    assert found is not None and found.worst == (1,)


def test_the_same_nan_bits_are_the_same():
    payload = bits(0x7FC0BEEF, 0xFFC00000)
    assert deviation("x", payload, payload.copy()) is None


def test_signed_zeros_are_not_bitwise_but_no_distance_either():
    result = one(f32(1.0, 0.0), f32(1.0, -0.0))
    assert result.verdict is Verdict.FLOOR
    assert (result.findings[0].reference, result.findings[0].candidate) == ("0", "-0")


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.bool_])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_scalars_and_empty_arrays_are_bitwise(dtype, shape):
    leaf = np.ones(shape, dtype)
    result = climb({"x": leaf}, {"x": leaf.copy()}, Judge(floor=never, exact=never))
    assert (result.verdict, result.detail, result.findings) == (Verdict.BITWISE, "1 leaves", ())


def test_empty_arrays_of_different_shapes_differ():
    found = deviation("x", np.zeros((0, 2)), np.zeros((0, 3)))
    assert (found.note, found.reference, found.candidate) == ("shape differs", "(0, 2)", "(0, 3)")


@pytest.mark.parametrize(
    ("noise", "verdict"),
    [
        (0.25 / FLOOR_FACTOR, Verdict.FLOOR),
        (np.nextafter(0.25 / FLOOR_FACTOR, 0), Verdict.FAILED),
        (1.0, Verdict.FLOOR),
        (0.0, Verdict.FAILED),
        (np.nan, Verdict.FAILED),
    ],
)
def test_the_floor_ends_at_ten_times_the_noise(noise, verdict):
    """The deviation is exactly 1/4: 4 against 5 has a relative Frobenius distance of 0.25."""
    assert FLOOR_FACTOR == 10
    result = one(f32(4.0), f32(5.0), floor={"x": noise})
    assert result.verdict is verdict


def test_an_unbounded_floor_is_no_floor():
    """A nudged reference that overflows has infinite noise; it must not accept everything."""
    assert one(f32(1.0), f32(9.0), floor={"x": np.inf}).verdict is Verdict.FAILED


@pytest.mark.parametrize(("units", "verdict"), [(9.0, Verdict.FLOOR), (11.0, Verdict.FAILED)])
def test_bfloat16_leaves_have_a_floor(units, verdict):
    reference, candidate = np.array([4, 0], BF16), np.array([5, 0], BF16)
    assert one(reference, candidate, floor={"x": 0.25 / units}).verdict is verdict


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (np.array([5, 9]), np.array([5, 8])),
        (np.array([True, False]), np.array([True, True])),
        (np.array([1, 2], ml_dtypes.int4), np.array([1, 3], ml_dtypes.int4)),
        (np.array([7], np.uint32), np.array([8], np.uint32)),
    ],
    ids=["int64", "bool", "int4", "key data"],
)
def test_integers_and_bools_have_no_floor_and_no_arbitration(reference, candidate):
    truth = candidate.astype(np.float64)
    assert one(reference, candidate, floor={"x": 1e9}, exact={"x": truth}).verdict is Verdict.FAILED


def test_complex_leaves_differ_in_their_imaginary_part():
    result = one(np.array([1 + 1j]), np.array([1 + 2j]), floor={"x": 1e-3})
    assert result.verdict is Verdict.FAILED
    assert (result.findings[0].reference, result.findings[0].candidate) == ("1+1j", "1+2j")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (0.25, Verdict.ARBITRATED),
        (-0.5, Verdict.ARBITRATED),
        (1.0, Verdict.ARBITRATED),
        (1.0 + 2**-20, Verdict.FAILED),
        (-4.0, Verdict.FAILED),
    ],
    ids=["better", "as bad on the other side", "twice as bad", "just beyond", "much worse"],
)
def test_arbitration_uses_the_float64_reference(error, verdict):
    """The reference errs by 0.5; numbers are powers of two so that the bound is reached exactly."""
    assert ARBITRATION == 2
    truth = np.array([8.0])
    result = one(f32(8.5), f32(8.0 + error), exact={"x": truth})
    assert result.verdict is verdict


@pytest.mark.parametrize(("truth", "verdict"), [(8.0, Verdict.ARBITRATED), (4.0, Verdict.FAILED)])
def test_a_truth_far_from_the_reference_excuses_nothing(truth, verdict):
    """Different random numbers in float64: both sides are equally far from such a run."""
    assert one(f32(8.5), f32(7.5), exact={"x": np.array([truth])}).verdict is verdict


def test_the_float64_reference_runs_only_above_the_floor():
    lower = Judge(floor=lambda: {"x": 1.0}, exact=never)
    assert climb({"x": f32(4.0)}, {"x": f32(5.0)}, lower).verdict is Verdict.FLOOR


@few
@given(reference=numbers, candidate=numbers, truth=numbers)
def test_the_float64_reference_runs_only_if_it_can_arbitrate(reference, candidate, truth):
    """A leaf too far from the reference fails for each float64 result."""
    sides = f32(reference), f32(candidate)
    if abs(candidate - reference) > 0.34 * abs(reference):
        lower = Judge(floor=dict, exact=never)
        assert climb({"x": sides[0]}, {"x": sides[1]}, lower).verdict is Verdict.FAILED
        exact = {"x": np.array([truth])}
        rung = rung_beyond(deviation("x", *sides), {"x": sides[0]}, {"x": sides[1]}, exact, {})
        assert rung is Verdict.FAILED


@pytest.mark.parametrize(
    ("noise", "each", "runs"), [(1e-3, False, False), (1e-9, False, True), (1e-3, True, True)]
)
def test_the_float64_reference_runs_only_if_it_can_save_the_worst_leaf(noise, each, runs):
    """The noise decides the worst leaf: ``b`` is too far off for each float64 result, ``a`` is not.

    A case with waivers needs each leaf.
    """
    calls = []
    lower = Judge(
        floor=lambda: {"a": noise, "b": 1e-6},
        each=each,
        exact=lambda: calls.append(0) or {"a": np.array([8.0]), "b": np.array([4.0])},
    )
    result = climb({"a": f32(8.5), "b": f32(4.0)}, {"a": f32(8.25), "b": f32(8.0)}, lower)
    assert result.verdict is Verdict.FAILED and result.findings[0].where == "b[0]" and bool(calls) is runs
    words = "; not arbitrated, no float64 run: the worst leaf fails without one"
    assert result.detail.endswith(words) is not runs
    assert [row["rung"] for row in result.tables["leaves"]] == ["failed", "arbitrated" if runs else "failed"]


def test_a_leaf_at_the_limit_is_arbitrated():
    """The reference errs by a tenth of the truth, the candidate twice as much on the other side."""
    truth = {"x": np.array([1.0])}
    found = deviation("x", np.array([0.9]), np.array([1.2]))
    assert found.relative <= FARTHEST * (1 + 1e-9)
    assert (
        climb({"x": np.array([0.91])}, {"x": np.array([1.18])}, judge(exact=truth)).verdict
        is Verdict.ARBITRATED
    )


@pytest.mark.parametrize(
    ("candidate", "truth", "verdict"),
    [
        (1.3e-17, 1e-37, Verdict.ARBITRATED),
        (-9.9e-17, 0.0, Verdict.ARBITRATED),
        (1.1e-16, 1e-37, Verdict.FAILED),
        (1.3e-17, 1e-20, Verdict.FAILED),
        (1.3e-17, -1e-18, Verdict.FAILED),
    ],
    ids=["a square", "at the bound", "beyond the bound", "small, not zero", "another number"],
)
def test_a_leaf_of_rounding_alone_may_deviate_by_the_square(candidate, truth, verdict):
    """The reference holds only rounding: float64 has nothing there. A square of it deviates by the square."""
    found = one(f32(1e-18), f32(candidate), floor={"x": 1.0}, exact={"x": np.array([truth])})
    assert found.verdict is verdict


def test_without_float64_nobody_knows_that_a_leaf_is_rounding():
    assert one(f32(1e-18), f32(1.3e-17), floor={"x": 1.0}).verdict is Verdict.FAILED


def test_a_leaf_without_a_truth_fails():
    assert one(f32(8.5), f32(8.25), exact={"y": np.array([8.0])}).verdict is Verdict.FAILED


def test_a_truth_that_is_not_finite_decides_nothing():
    assert one(f32(8.5), f32(8.25), exact={"x": np.array([np.nan])}).verdict is Verdict.FAILED


def test_leaves_are_listed_failed_first_then_worst_first_in_units_of_the_floor():
    """`big` is furthest in relative terms but within its noise; `count` has no noise at all."""
    reference = {"big": f32(1.0), "small": f32(1.0), "tiny": f32(1.0), "count": np.array([1_000_000])}
    candidate = {"big": f32(2.0), "small": f32(1.5), "tiny": f32(1.25), "count": np.array([1_000_001])}
    floor = {"big": 0.2, "small": 0.02, "tiny": 0.001, "count": 1.0}
    result = climb(reference, candidate, judge(floor))
    assert result.verdict is Verdict.FAILED
    assert [finding.where for finding in result.findings] == ["tiny[0]", "small[0]", "count[0]"]
    assert result.detail.startswith("3 of 4 leaves differ and 1 within noise, worst 250 x noise")
    assert "rung failed" in result.findings[0].distance
    assert [row["rung"] for row in result.tables["leaves"]] == ["failed"] * 3 + ["floor"]


def test_only_leaves_that_differ_are_listed():
    result = climb({"a": f32(1.0), "b": f32(2.0)}, {"a": f32(1.0), "b": f32(3.0)}, judge())
    assert [finding.where for finding in result.findings] == ["b[0]"]
    assert result.detail.startswith("1 of 2 leaves differ")


@pytest.mark.parametrize(
    ("candidate", "note", "shown"),
    [
        (np.ones((2, 1), np.float32), "shape differs", ("(2,)", "(2, 1)")),
        (np.ones(2, np.float64), "dtype differs", ("float32", "float64")),
        (np.ones(2, BF16), "dtype differs", ("float32", "bfloat16")),
    ],
)
def test_shape_and_dtype_are_named_and_never_within_a_floor(candidate, note, shown):
    result = one(np.ones(2, np.float32), candidate, floor={"x": 1e9}, exact={"x": np.ones(2)})
    assert result.verdict is Verdict.FAILED
    finding = result.findings[0]
    assert (finding.distance, finding.reference, finding.candidate) == (note, *shown)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_named_and_placed(number):
    result = one(f32(1.0, 2.0, 3.0), f32(1.0, number, 3.5), floor={"x": 1e9})
    assert result.verdict is Verdict.FAILED
    assert (result.findings[0].where, result.findings[0].distance) == ("x[1]", "values that are not finite")
    assert result.findings[0].candidate == str(number)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_equal_numbers_that_are_not_finite_leave_the_verdict_to_the_others(number):
    reference = f32(1.0, number, 3.0)
    assert one(reference, f32(1.0, number, 3.0 + 1e-6), floor={"x": 1e-6}).verdict is Verdict.FLOOR
    far = one(reference, f32(1.0, number, 3.5), floor={"x": 1e-6})
    assert far.verdict is Verdict.FAILED and far.findings[0].where == "x[2]"
    assert one(reference, f32(1.0, 2.0, 3.0), floor={"x": 1e9}).verdict is Verdict.FAILED
    assert one(reference, f32(1.0, 3.0, number), floor={"x": 1e9}).verdict is Verdict.FAILED


def test_a_reference_of_zeros_is_not_called_infinite():
    result = one(f32(0.0, 0.0), f32(0.0, 1e-3), floor={"x": 0.0})
    assert result.verdict is Verdict.FAILED
    assert result.findings[0].distance.startswith("relative inf")


def test_large_integers_are_shown_to_the_last_digit():
    result = one(np.array([4_000_000_001], np.uint32), np.array([4_000_000_002], np.uint32))
    finding = result.findings[0]
    assert (finding.reference, finding.candidate) == ("4000000001", "4000000002")


def test_the_index_of_the_worst_entry_is_given():
    reference = np.zeros((2, 3), np.float32)
    reference[0] = 1
    candidate = reference.copy()
    candidate[1, 2], candidate[0, 0] = 4.0, 1.5
    assert deviation("x", reference, candidate).worst == (1, 2)


@pytest.mark.parametrize(
    ("require", "verdict"),
    [(Verdict.BITWISE, Verdict.FAILED), (Verdict.FLOOR, Verdict.FLOOR), (Verdict.ARBITRATED, Verdict.FLOOR)],
)
def test_a_floor_fails_if_bits_are_required(require, verdict):
    result = one(f32(4.0), f32(5.0), floor={"x": 1.0}, require=require)
    assert result.verdict is verdict
    assert ("rung floor where bitwise is required" in result.detail) == (verdict is Verdict.FAILED)


@pytest.mark.parametrize("require", [Verdict.PROVED, Verdict.REORDERED])
def test_equal_bits_fail_if_the_same_program_is_required(require):
    result = one(f32(4.0), f32(4.0), require=require)
    assert result.verdict is Verdict.FAILED
    assert f"rung bitwise where {require} is required" in result.detail


def test_arbitration_fails_if_a_floor_is_required():
    result = one(f32(8.5), f32(8.25), exact={"x": np.array([8.0])}, require=Verdict.FLOOR)
    assert result.verdict is Verdict.FAILED
    assert "rung arbitrated where floor is required" in result.detail


def test_one_leaf_down_takes_the_channel_down():
    reference = {"a": f32(4.0), "b": f32(8.5), "c": f32(1.0)}
    candidate = {"a": f32(5.0), "b": f32(8.25), "c": f32(1.0)}
    lower = judge({"a": 1.0}, {"b": np.array([8.0])})
    assert climb(reference, candidate, lower).verdict is Verdict.ARBITRATED


def test_a_missing_float64_run_is_named_by_the_channels_that_needed_it():
    reference, near, far = f32(1, 2), f32(1, 2.0001), f32(1, 2.2)
    why = Absent("a carry is float32")
    words = "; not arbitrated, no float64 run: a carry is float32"
    beyond = one(reference, far, floor={"x": 1e-6}, exact=why)
    assert beyond.verdict is Verdict.FAILED and beyond.detail.endswith(words)
    within = one(reference, near, floor={"x": 1.0}, exact=why)
    assert within.verdict is Verdict.FLOOR and "float64" not in within.detail
    assert "float64" not in one(reference, reference, exact=why).detail
    integers = one(np.array([1]), np.array([2]), exact=why)  # no run arbitrates these
    assert integers.verdict is Verdict.FAILED and "float64" not in integers.detail


@pytest.mark.parametrize(
    ("number", "places", "hidden"),
    [
        (-1e9, 2, True),
        (-1e9, 1, False),
        (-1e4, 2, True),
        (-1e2, 2, False),
        (float(np.finfo("float32").min), 3, True),
    ],
)
def test_the_fill_of_a_mask_hides_no_other_entry(number, places, hidden):
    reference = np.random.default_rng(0).standard_normal(12).astype("float32")
    reference[:places] = number
    candidate = reference * np.where(reference == reference[0], 1, 1.1).astype("float32")
    found = deviation("x", reference, candidate)
    assert (found.relative > 0.05) is hidden, found
    candidate[0] = 1.0
    assert deviation("x", reference, candidate).relative > 0.1


@pytest.mark.parametrize(("factor", "verdict"), [(1 + 3e-7, Verdict.FLOOR), (1.05, Verdict.FAILED)])
@pytest.mark.parametrize("large", [1e6, 1e9])
def test_one_large_entry_hides_no_error_of_the_others(large, factor, verdict):
    rng = np.random.default_rng(1)
    reference = np.append(rng.standard_normal(6), large).astype("float32")
    noisy = [{"x": np.nextafter(reference, (reference * sign).astype("float32"))} for sign in (2, 0, 2)]
    candidate = np.append(factor * reference[:-1], np.nextafter(reference[-1], np.float32(0))).astype(
        "float32"
    )
    result = climb({"x": reference}, {"x": candidate}, judge(measure_floor({"x": reference}, noisy)))
    assert result.verdict is verdict
    assert result.findings[0].where != "x[6]"


def test_small_entries_behind_the_fill_of_a_mask_have_a_floor():
    numbers = np.random.default_rng(0).standard_normal(12) * np.repeat([1, 1e-4], [3, 9])
    reference = np.append(np.full(20, -1e9), numbers).astype("float32")
    moved = np.where(reference == reference[0], reference, np.nextafter(reference, np.float32(9)))
    floor = measure_floor({"x": reference}, [{"x": moved}])
    assert one(reference, moved, floor=floor).verdict is Verdict.FLOOR


def test_small_entries_are_arbitrated_alone():
    reference, exact = f32(1e6, 1.0, 2.0), np.array([1e6 + 0.5, 1.01, 2.0])
    floor = {"x": 1e-7, "x (minor)": 1e-7}
    assert one(reference, f32(1e6, 1.02, 2.0), floor=floor, exact={"x": exact}).verdict is Verdict.ARBITRATED
    assert one(reference, f32(1e6, 1.1, 2.0), floor=floor, exact={"x": exact}).verdict is Verdict.FAILED
