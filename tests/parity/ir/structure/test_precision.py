"""Dots that request a different precision or algorithm, which a CPU computes with equal bits."""

import jax
import jax.numpy as jnp
import pytest

from parity.channels.dots import compare_dots
from parity.ir.stablehlo.dtypes import read_dtypes


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        (jax.lax.Precision.HIGHEST, "f32 x f32 -> f32 at HIGHEST"),
        (jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X3, "lhs_precision_type = bf16"),
    ],
)
def test_a_dot_at_another_precision_is_named_if_numbers_are_equal(asked, word):
    x = jnp.ones((3, 4))
    plain, other = (
        read_dtypes(jax.jit(lambda x, asked=asked: jnp.einsum("ab,cb->ac", x, x, precision=asked)).lower(x))
        for asked in (None, asked)
    )
    (finding,) = compare_dots(plain, other).findings
    assert (
        finding.reference == "f32 x f32 -> f32" and word in finding.candidate and "precision" in finding.cause
    )
