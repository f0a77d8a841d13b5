"""Results that are forwarded arguments of a program."""

import jax
import jax.numpy as jnp
from jax import lax

from parity.ir.jaxprs import forwarded_arguments

X, W = jnp.ones((4, 3)), jnp.ones((4, 3))


def scanned(body):
    return lambda x, w: lax.scan(body, x[0], w)


def test_results_are_followed_through_calls():
    assert forwarded_arguments(lambda x, w: (w, x, x + w, 1.0), X, W) == [1, 0, None, None]
    inner = jax.jit(lambda x, w: (jnp.sin(x), w))
    assert forwarded_arguments(lambda x, w: inner(x, w), X, W) == [None, 1]
    assert forwarded_arguments(jax.checkpoint(lambda x, w: (x * w, w)), X, W) == [None, 1]


def test_a_scan_forwards_stacked_inputs():
    assert forwarded_arguments(scanned(lambda x, w: (x + w, w)), X, W) == [None, 1]
    assert forwarded_arguments(scanned(lambda x, w: (x + w, 2 * w)), X, W) == [None, None]


def test_a_scan_that_swaps_carry_and_input_forwards_nothing():
    assert forwarded_arguments(scanned(lambda x, w: (w, x)), X, W) == [None, None]
    stacks_a_constant = lambda x, w: lax.scan(lambda c, _: (c + 1, x), 0.0, w)[1]  # noqa: E731
    assert forwarded_arguments(stacks_a_constant, X, W) == [None]


def test_branches_and_loops_are_not_followed():
    either = lambda x, w: lax.cond(x.sum() > 0, lambda x, w: w, lambda x, w: x, x, w)  # noqa: E731
    assert forwarded_arguments(either, X, W) == [None]
