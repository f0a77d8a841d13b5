"""Nudges, random states and the floor: the numbers that the ladder uses."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.builds.tree import Leaf, Role
from parity.values.noise import DRAWS, measure_floor, nudge, randomise, to_float64

few = settings(max_examples=120, deadline=None, database=None, derandomize=True)
FLOATS = tuple(
    np.dtype(name)
    for name in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)
)
WORD = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def leaf(path, array, role=Role.PARAMS):
    return Leaf(path=path, shape=array.shape, dtype=str(array.dtype), role=role)


def rng(seed=0):
    return np.random.default_rng(seed)


@few
@given(st.sampled_from(FLOATS), st.integers(0, 999))
def test_a_nudge_is_one_unit_in_the_last_place(dtype, seed):
    """Neighbouring floats of one sign are neighbouring integers if their bits are read as integers."""
    x = rng(seed).uniform(0.05, 100.0, (4, 5)).astype(dtype)
    x[::2] *= -1
    nudged = nudge({"x": x}, rng(seed))["x"]
    assert (nudged.shape, nudged.dtype) == (x.shape, x.dtype)
    words = [array.view(WORD[dtype.itemsize]).astype(np.int64) for array in (x, nudged)]
    np.testing.assert_array_equal(np.abs(words[0] - words[1]), 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_nudge_goes_both_ways(dtype):
    x = np.full(64, 1.5, dtype)
    nudged = nudge({"x": x}, rng())["x"].astype(np.float64)
    assert set(np.sign(nudged - 1.5)) == {-1.0, 1.0}


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_nudge_leaves_zeros_and_non_finite_values(dtype):
    """Masks are made of the lowest number or of infinities; a nudge must not make new ones."""
    limit = ml_dtypes.finfo(dtype).max
    x = np.array([0.0, -0.0, limit, -limit, np.nan], dtype)
    for seed in range(4):
        nudged = nudge({"x": x}, rng(seed))["x"]
        assert nudged[:2].tobytes() == x[:2].tobytes()
        assert np.isfinite(nudged[2:4].astype(np.float64)).all()
        assert np.isnan(nudged[4].astype(np.float64))


@pytest.mark.parametrize("number", [np.inf, -np.inf])
def test_a_nudge_leaves_infinities(number):
    x = np.full(8, number, np.float32)
    np.testing.assert_array_equal(nudge({"x": x}, rng())["x"], x)


@pytest.mark.parametrize(
    "array",
    [
        np.array([3, 4]),
        np.array([True, False]),
        np.array([[1, 2]], np.uint32),
        np.array([1, 2], ml_dtypes.int4),
    ],
    ids=["ints", "bools", "keys", "int4"],
)
def test_a_nudge_leaves_values_that_are_no_floats(array):
    assert nudge({"x": array}, rng())["x"].tobytes() == array.tobytes()


def test_a_nudge_does_not_write_to_its_argument():
    x = np.ones(4, np.float32)
    nudge({"x": x}, rng())
    np.testing.assert_array_equal(x, np.ones(4))


def initial_state():
    bf16 = ml_dtypes.bfloat16
    state = {
        "params/scale": np.ones((3, 4), np.float32),
        "params/bias": np.zeros(5, bf16),
        "params/kernel": rng().standard_normal((4, 6)).astype(bf16),
        "params/temperature": np.array(1.0, np.float32),
        "params/codes": np.array([1, 2, 3], ml_dtypes.int4),
        "batch_stats/mean": np.zeros(7, np.float32),
        "cache/index": np.zeros(2, np.int32),
        "opt_state/mu": np.zeros(8, np.float32),
        "step": np.array(0, np.int32),
        "key": np.array([0, 42], np.uint32),
    }
    others = {"opt_state": Role.OPTIMIZER, "step": Role.OPTIMIZER, "key": Role.RNG, "params": Role.PARAMS}
    leaves = {
        path: leaf(path, array, others.get(path.split("/")[0], Role.STATE)) for path, array in state.items()
    }
    return state, leaves


MOVED = {"params/scale", "params/bias", "params/kernel", "params/temperature", "batch_stats/mean"}


def test_randomise_moves_every_float_parameter_and_buffer_and_nothing_else():
    state, leaves = initial_state()
    moved = randomise(state, leaves, 1)
    assert list(moved) == list(state)
    for path, array in moved.items():
        assert isinstance(array, np.ndarray)
        assert (array.shape, array.dtype) == (state[path].shape, state[path].dtype)
        if path not in MOVED:
            assert array.tobytes() == state[path].tobytes()
        else:
            assert (array != state[path]).any()
            assert array.size == 1 or len(np.unique(array.astype(np.float64))) > array.size // 2


def test_randomise_stays_near_the_initial_value():
    state, leaves = initial_state()
    moved = randomise(state, leaves, 1)["params/scale"]
    assert moved.min() > 0.3 and moved.max() < 1.7 and 0.01 < moved.std() < 0.3


def test_randomise_is_deterministic_and_follows_its_seed():
    state, leaves = initial_state()
    one, again, other = (randomise(state, leaves, seed) for seed in (1, 1, 2))
    shuffled = randomise(dict(reversed(state.items())), leaves, 1)
    for path in MOVED:
        assert one[path].tobytes() == again[path].tobytes() == shuffled[path].tobytes()
        assert one[path].tobytes() != other[path].tobytes()


def test_randomise_draws_each_leaf_for_itself():
    state = {"a": np.ones(6), "b": np.ones(6)}
    moved = randomise(state, {path: leaf(path, array) for path, array in state.items()}, 0)
    assert (moved["a"] != moved["b"]).all()


def test_randomise_does_not_write_to_its_argument():
    state, leaves = initial_state()
    before = {path: array.tobytes() for path, array in state.items()}
    randomise(state, leaves, 3)
    assert {path: array.tobytes() for path, array in state.items()} == before


def floor_of(function, x):
    draws = [nudge({"x": x}, np.random.default_rng(1_000 + draw)) for draw in range(DRAWS)]
    return measure_floor(function(x), [function(nudged["x"]) for nudged in draws])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_the_floor_of_a_linear_function_is_of_the_order_of_eps(dtype):
    x = rng().uniform(1.0, 2.0, 1000).astype(dtype)
    eps = float(ml_dtypes.finfo(dtype).eps)
    floor = floor_of(lambda x: {"same": x, "twice": x + x}, x)
    for noise in floor.values():
        assert 0.5 * eps < noise < 1.01 * eps


def test_the_floor_shrinks_when_noise_averages_and_grows_when_it_is_amplified():
    x = rng().uniform(1.0, 2.0, 1000).astype(np.float32)
    mean = x.astype(np.float64).mean()

    def run(x):
        now = x.astype(np.float64).mean()
        return {"mean": now, "x": x, "rest": now - 0.99 * mean}

    floor = floor_of(run, x)
    assert 0 < floor["mean"] < 0.2 * floor["x"]
    np.testing.assert_allclose(floor["rest"], 100 * floor["mean"], rtol=1e-3)


def test_the_floor_is_never_below_half_a_unit_in_the_last_place_and_zero_without_floats():
    x = rng().uniform(1.0, 2.0, 10)
    outputs = {"size": np.array(x.size), "one": np.ones(3), "half": np.ones(2, ml_dtypes.bfloat16)}
    assert floor_of(lambda x: outputs, x) == {"size": 0.0, "one": 2.0**-53, "half": 2.0**-8}


def test_the_floor_is_the_median_of_its_draws_and_repeats():
    """One draw in three that explodes (a routing tie that flips) does not set the floor."""
    calls = []

    def unstable(x):
        calls.append(1)
        return {"x": x * 1e6 if len(calls) % 4 == 2 else x}

    x = rng().uniform(1.0, 2.0, 100)
    assert floor_of(unstable, x)["x"] < 1e-14
    assert len(calls) == 4
    assert len({floor_of(lambda x: {"x": x.cumsum()}, x)["x"] for _ in range(3)}) == 1


def test_float64_widens_floats_exactly_and_only_them():
    state, _ = initial_state()
    wide = to_float64(state)
    for path, array in state.items():
        floating = array.dtype in (np.float32, ml_dtypes.bfloat16)
        assert wide[path].dtype == (np.float64 if floating else array.dtype)
        np.testing.assert_array_equal(wide[path].astype(np.float64), array.astype(np.float64))


def test_a_noisy_leaf_lends_its_floor_to_no_other():
    x = rng().uniform(1.0, 2.0, 100).astype(np.float32)
    amplified = floor_of(lambda x: {"a noisy": (x - 1.5) * 0 + np.sin(1e6 * x), "calm": x + x}, x)
    alone = floor_of(lambda x: {"calm": x + x}, x)
    assert amplified["calm"] == alone["calm"] < amplified["a noisy"] / 100
