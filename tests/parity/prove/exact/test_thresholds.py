"""Jumps of rounded values, ends of types, empty arrays: differing programs are not proved without an assumption."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.prove.exact import Link, Named, Relation, equal

BF16, F16, F32, I8, I32 = jnp.bfloat16, jnp.float16, jnp.float32, jnp.int8, jnp.int32
NEAR = np.array([0.9999, 1.0001, -2.5001, 7.0], F32)
SQUARE = np.array([[0.1, 0.2], [0.3, 0.7]], F32)


def named(function, given):
    names = [f"x{i}" for i in range(len(given))]
    program = jax.jit(function, keep_unused=True).lower(
        *[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in given]
    )
    return Named(program=program, arguments=names, results=["y"])


def claim(left, right, *given):
    """Returns whether two functions of the same arguments are equal."""
    sides = [named(function, given) for function in (left, right)]
    links = [Link(reference=(name,), candidate=(name,)) for name in sides[0].arguments]
    return equal(*sides, Relation(arguments=links, results=[Link(reference=("y",), candidate=("y",))]))


def narrow(x):
    return x.astype(BF16).astype(F32)


def lost(x):
    return (x + 1e8 * x) - 1e8 * x


def filled(number, dtype):
    return lambda x: jnp.full(x.shape, number, dtype)


def computed(number, *dtypes):
    """Returns a function that computes a constant and converts it."""

    def run(x):
        y = x * 0 + number
        for dtype in dtypes:
            y = y.astype(dtype)
        return y

    return run


def sliced(index):
    return lambda x: jax.lax.dynamic_slice(x, [index()], [2])


JUMPS = {
    "floor": (lambda x: jnp.floor(narrow(x)), jnp.floor, "floor"),
    "ceil": (lambda x: jnp.ceil(narrow(x)), jnp.ceil, "ceil"),
    "round": (lambda x: jnp.round(narrow(x)), jnp.round, "round_nearest_even"),
    "round away from zero": (
        lambda x: jax.lax.round(narrow(x) + 0.5, jax.lax.RoundingMethod.AWAY_FROM_ZERO),
        lambda x: jax.lax.round(x + 0.5, jax.lax.RoundingMethod.AWAY_FROM_ZERO),
        "round_nearest_afz",
    ),
    "an integer": (lambda x: x.astype(BF16).astype(I32), lambda x: x.astype(I32), "convert"),
    "an integer of a sum": (lambda x: lost(x).astype(I32), lambda x: x.astype(I32), "convert"),
    "a boolean": (lambda x: lost(x).astype(bool), lambda x: x.astype(bool), "compare"),
    "a sign": (lambda x: jnp.sign(lost(x)), jnp.sign, "sign"),
    "a remainder": (
        lambda x: jax.lax.rem(narrow(x), x * 0 + 1),
        lambda x: jax.lax.rem(x, x * 0 + 1),
        "remainder",
    ),
    "a comparison": (lambda x: narrow(x) >= 1, lambda x: x >= 1, "compare"),
    "a comparison with itself": (lambda x: narrow(x) == x, lambda x: x == x, "compare"),
    "a choice": (lambda x: jnp.where(narrow(x) < 1, 5.0, x), lambda x: jnp.where(x < 1, 5.0, x), "compare"),
    "a branch": (
        lambda x: jax.lax.cond(narrow(x)[0] >= 1, lambda: x, lambda: -x),
        lambda x: jax.lax.cond(x[0] >= 1, lambda: x, lambda: -x),
        "compare",
    ),
    "a loop": (
        lambda x: jax.lax.fori_loop(0, 2, lambda i, c: jnp.floor(narrow(c)), x),
        lambda x: jax.lax.fori_loop(0, 2, lambda i, c: jnp.floor(c), x),
        "floor",
    ),
    "what underflows is above zero": (lambda x: jnp.exp(-300 * x) > 0, filled(True, bool), "compare"),
    "a difference that cannot be negative": (
        lambda x: jnp.exp(-10 * jnp.abs(x)) + x - narrow(x) >= 0,
        filled(True, bool),
        "compare",
    ),
    "integers as floats": (
        lambda x: jnp.full(4, 2**24 + 1, I32).astype(F32).astype(I32) + x.astype(I32) * 0,
        lambda x: jnp.full(4, 2**24 + 1, I32) + x.astype(I32) * 0,
        "",
    ),
    "indices in bfloat16": (
        lambda x: jax.lax.iota(BF16, 300).astype(I32),
        lambda x: jax.lax.iota(F32, 300).astype(I32),
        "convert",
    ),
}


@pytest.mark.parametrize("name", JUMPS)
def test_a_jump_of_a_rounded_value_is_assumed_away_by_name_or_refused(name):
    left, right, operation = JUMPS[name]
    assert not np.array_equal(jax.jit(left)(NEAR), jax.jit(right)(NEAR)), "the pair is no attack"
    found = claim(left, right, NEAR)
    if operation:
        assert found.proved, found
        assert any(f"operand of {operation} across a threshold at " in each for each in found.assumptions)
    else:
        assert "rounded" in found.refusal


OTHER = {
    "beyond int8": (computed(300, I8), filled(44, I8)),
    "below int8": (computed(-300, I8), filled(-44, I8)),
    "beyond int32": (computed(3e9, I32), filled(3_000_000_000 - 2**32, I32)),
    "below uint8": (computed(-1, jnp.uint8), filled(255, jnp.uint8)),
    "beyond int4": (computed(9, jnp.int4), filled(-7, jnp.int4)),
    "infinity": (computed(np.inf, I32), filled(0, I32)),
    "NaN": (computed(np.nan, I32), filled(-(2**31), I32)),
    "beyond float16": (computed(70_000, F16, F32), filled(70_000, F32)),
    "beyond bfloat16": (computed(3.4028235e38, BF16, F32), filled(3.4028235e38, F32)),
    "beyond float8": (computed(500, jnp.float8_e4m3fn, F32), filled(500, F32)),
    "infinity in a type without": (computed(np.inf, jnp.float8_e4m3fn, I32), filled(2**31 - 1, I32)),
    "an integer beyond float16": (
        lambda x: jnp.full(x.shape, 70_000, I32).astype(F16).astype(F32) + 0 * x,
        filled(70_000, F32),
    ),
    "zero times infinity": (lambda x: x * 0 + 0 * jnp.full(x.shape, np.inf) * x, lambda x: x * 0),
    "infinity less infinity": (
        lambda x: jnp.full_like(x, np.inf) - jnp.full_like(x, np.inf) + x,
        lambda x: x,
    ),
    "the sum and the product of nothing": (lambda x: x[:0].sum() + x, lambda x: x[:0].prod() + x),
    "the sum and the maximum of nothing": (
        lambda x: jnp.broadcast_to(x, (0, 4)).sum(0),
        lambda x: jnp.broadcast_to(x, (0, 4)).max(0, initial=-1.0),
    ),
    "a product over nothing": (lambda x: jnp.ones((4, 0)) @ jnp.ones((0,)) + x, lambda x: 1 + x),
    "an index that is negative with a sign": (
        sliced(lambda: jax.lax.full((), 200, jnp.uint8)),
        sliced(lambda: jax.lax.full((), 200, I32)),
    ),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_numbers_are_never_proved_equal(name):
    left, right = OTHER[name]
    assert not np.array_equal(jax.jit(left)(NEAR), jax.jit(right)(NEAR)), "the pair is no attack"
    assert not claim(left, right, NEAR).proved


KEPT = {
    "an integer of an input": lambda x: x.astype(I32) * 1.0,
    "a comparison of inputs": lambda x: jnp.where(x > 0.5, x @ x, x),
    "positions": lambda x: jnp.where(jnp.arange(2)[:, None] >= jnp.arange(2)[None], x @ x, -1e9),
    "positions as floats": lambda x: jnp.where(
        jnp.arange(2.0)[:, None] >= jnp.arange(2.0)[None], x @ x, -1e9
    ),
    "a mask that was a float": lambda x: jnp.where((x > 0).astype(F32) * 1.0 > 0, x @ x, 0),
    "a maximum": lambda x: jnp.maximum(x @ x, 0),
    "clipped": lambda x: jnp.clip(x @ x, -1, 1),
    "a softmax": lambda x: jax.nn.softmax(x @ x),
    "a logarithm of a softmax and its gradient": jax.grad(lambda x: jax.nn.logsumexp(x @ x, 0)[0]),
    "dropout": lambda x: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.9, (2, 2)), x @ x / 0.9, 0),
    "a question for NaN": lambda x: jnp.where(jnp.isnan(x @ x), 0, x),
    "a constant that is held": lambda x: jnp.where(x * 0 + 300 > 200, x @ x, 0),
    "an extreme of inputs": lambda x: (x.max(0) > x.min(1)).astype(F32),
    "rounded and then compared": lambda x: (jnp.floor(jnp.abs(x)) > 1) * 1.0,
}


@pytest.mark.parametrize("name", KEPT)
def test_unrounded_or_continuous_values_need_no_assumption(name):
    found = claim(KEPT[name], lambda x: KEPT[name](x) + 0, SQUARE)
    assert found.proved and found.assumptions == (), found


def test_a_rounded_integer_may_be_negative():
    """Summed in a different order, -1, 2**30 and -2**30 are 0 or -1."""
    numbers = [np.array([number], I32) for number in (-1, 2**30, -(2**30))]

    def first(x, y, z):
        x, y, z = (each.astype(F32) for each in (x, y, z))
        return jnp.where((x + y) + z >= 0, 1.0, 2.0)

    def last(x, y, z):
        x, y, z = (each.astype(F32) for each in (x, y, z))
        return jnp.where(x + (y + z) >= 0, 1.0, 2.0)

    assert jax.jit(first)(*numbers) != jax.jit(last)(*numbers), "the pair is no attack"
    assert "threshold" in str(claim(first, last, *numbers).assumptions)


def test_an_angle_jumps():
    """A sum that rounds to the opposite sign of zero changes the angle by a full rotation."""
    x, y = (np.array([number], F32) for number in (1e8, -1e-3))
    left, right = (
        lambda x, y: jnp.arctan2(y + x - x, -jnp.ones_like(x)),
        lambda x, y: jnp.arctan2(y, -jnp.ones_like(x)),
    )
    assert abs(jax.jit(left)(x, y) - jax.jit(right)(x, y)) > 6, "the pair is no attack"
    assert "atan2" in str(claim(left, right, x, y).assumptions)


def test_a_widened_input_is_not_rounded():
    whole = lambda x: jnp.floor(x.astype(F32))  # noqa: E731
    found = claim(whole, lambda x: whole(x) + 0, SQUARE.astype(BF16))
    assert found.proved and found.assumptions == (), found


def test_edges_that_cut_off_all_there_is_are_refused_or_empty():
    cut = lambda x: jax.lax.pad(x, F32(0), [(-5, 4, 0)])  # noqa: E731
    assert "edges" in claim(cut, cut, NEAR).refusal
