"""Checks for numbers that are not finite: counted by kind, and programs in which they find none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.ir.checks import Unchecked, count_checks
from parity.ir.precision import retraced

ARRAY = np.asarray([1.0, np.nan, np.inf, -np.inf], np.float32)


def counted(function):
    return count_checks(jax.make_jaxpr(function)(ARRAY))


def test_checks_are_counted_by_kind():
    assert counted(jnp.isfinite) == {"finite": 1}
    assert counted(jnp.isnan) == {"nan": 1}
    assert counted(jnp.nan_to_num) == {"nan": 1, "infinite": 2}
    assert counted(lambda x: jnp.full_like(x, -jnp.inf) < x) == {"infinite": 1}
    assert not counted(lambda x: x > 3)


@pytest.mark.parametrize(
    "check",
    [
        lambda x: jnp.where(jnp.isfinite(x), x, 0.0),
        lambda x: jnp.where(jnp.abs(x) < jnp.inf, x, 0.0),
        lambda x: jax.jit(jnp.nan_to_num)(x),
        lambda x: jax.lax.map(
            lambda one: jax.lax.cond(jnp.isfinite(one), lambda x: x, jnp.zeros_like, one), x
        ),
    ],
)
def test_without_its_checks_a_program_keeps_what_is_not_finite(check):
    assert np.isfinite(check(ARRAY)).all()
    np.testing.assert_array_equal(jax.jit(retraced(check, Unchecked()))(ARRAY), ARRAY)


def test_other_comparisons_keep_their_results():
    def accepted(x):
        return jnp.where(x >= 0.5, x, 0.0)

    np.testing.assert_array_equal(jax.jit(retraced(accepted, Unchecked()))(ARRAY), accepted(ARRAY))
