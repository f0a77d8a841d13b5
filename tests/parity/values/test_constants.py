"""Constants that a program combines with its arguments, and the argument values at which it does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.ir.stablehlo.reader import read_program
from parity.values.constants import Use, met_constants

COUNT, ARRAY = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((4,), jnp.float32)


def harvested(function, argument):
    return met_constants(read_program(jax.jit(function).lower(argument)))


OF_COUNTS = {
    "compared": (lambda c: c < 1000, 1000),
    "compared from the left": (lambda c: jnp.greater(1000, c), 1000),
    "clamped": (lambda c: jnp.clip(c, 0, 70), 70),
    "divided": (lambda c: c // 30, 30),
    "a remainder": (lambda c: c % 40, 40),
    "a mask": (lambda c: c & 63, 64),
    "a shift": (lambda c: c >> 5, 32),
    "an entry of a table": (lambda c: jnp.arange(10.0)[c] * jnp.asarray(np.ones(10, np.float32))[c], 7),
    "a converted and scaled one": (lambda c: c.astype(jnp.float32) * 0.5 - 3 > 40, 86),
    "a scaled division": (lambda c: (c / 300 > 2) * 1.0, 600),
    "an inverse": (lambda c: c.astype(jnp.float32) * (1 / 500), 500),
    "a branch": (lambda c: jax.lax.switch(c // 100, [lambda: 1.0, lambda: 2.0, lambda: 3.0]), 200),
    "a call": (lambda c: jax.jit(lambda d: jnp.where(d > 55, 1, 2))(c + 5), 50),
    "a bool of it": (lambda c: jnp.where(jnp.where(c > 9, c - 9, 0) > 90, 1, 2), 99),
    "a loop": (lambda c: jax.lax.fori_loop(0, 3, lambda i, x: x + (c == 44), jnp.int32(0)), 44),
    "a scan": (lambda c: jax.lax.scan(lambda x, _: (x, x > 33), c, None, length=2)[1], 33),
    "a cosine's end": (lambda c: jnp.cos(jnp.minimum(c - 100, 900) / 900), 1000),
}


@pytest.mark.parametrize("name", OF_COUNTS)
def test_a_counter_compared_with_a_constant_is_found(name):
    function, number = OF_COUNTS[name]
    seen = harvested(function, COUNT).seen
    assert any(each.argument == 0 and each.number == pytest.approx(number) for each in seen), seen


OF_FLOATS = {
    "abs": (lambda x: jnp.abs(x) > 3, {3, -3}),
    "square": (lambda x: x * x > 9, {3, -3}),
    "negated": (lambda x: 1 - x > 4, {-3}),
    "exponential": (lambda x: jnp.exp(x) > np.float32(np.exp(2.0)), {2}),
    "logarithm": (lambda x: jnp.log(x) < 0.5, {np.exp(0.5)}),
    "a root": (lambda x: jnp.sqrt(x) < 0.5, {0.25}),
    "tanh": (lambda x: jnp.tanh(x) > 0.5, {np.arctanh(0.5)}),
    "sigmoid": (lambda x: jax.nn.sigmoid(x) > 0.75, {np.log(3)}),
    "a quotient": (lambda x: 2 / x > 0.5, {4}),
    "never": (lambda x: jnp.abs(x) > -3, set()),
}


@pytest.mark.parametrize("name", OF_FLOATS)
def test_entries_of_an_array_compared_with_a_constant_are_found(name):
    function, numbers = OF_FLOATS[name]
    seen = {each for each in harvested(function, ARRAY).seen if each.use is Use.COMPARED}
    assert sorted(each.number for each in seen if each.argument == 0) == pytest.approx(
        sorted(numbers), rel=1e-5
    )


def test_a_value_of_several_entries_is_no_function_of_one():
    seen = harvested(lambda x: jnp.sum(x) > 5, ARRAY).seen
    assert {(each.use, each.argument, each.number) for each in seen if each.use is Use.COMPARED} == {
        (Use.COMPARED, None, 5.0)
    }


def test_a_constant_that_may_be_another_number_is_none():
    """Else the variance of no numbers, NaN, hides the added epsilon."""
    seen = harvested(lambda x: jnp.sqrt(jnp.var(x) + 1e-5), ARRAY).seen
    assert any(each.use is Use.ADDED and each.constant == pytest.approx(1e-5) for each in seen)


def test_a_result_that_is_a_remainder_wraps():
    assert harvested(lambda c: (c + 1) % 8, COUNT).wraps == {0: 8}
    assert not harvested(lambda c: c + 1, COUNT).wraps


def test_a_counter_is_followed_to_the_last_iteration_of_a_loop():
    def run(at):
        def step(_, carry):
            return carry[0] + 1, jax.lax.dynamic_update_slice(carry[1], jnp.ones(1), (carry[0],))

        return jax.lax.fori_loop(2, 6, step, (at, jnp.zeros(10)))

    written = {one.number for one in harvested(run, COUNT).seen if one.use is Use.WRITTEN}
    assert {9.0, 6.0} <= written


def test_a_loop_that_a_flag_ends_has_no_known_iterations():
    def run(x):
        return jax.lax.while_loop(lambda c: c[0], lambda c: (c[1].sum() < 5, c[1] * 1.5), (x[0] < 1, x))

    assert {1.0, 5.0} <= {one.constant for one in harvested(run, ARRAY).seen}
