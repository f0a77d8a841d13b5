"""Dots that request a different precision or algorithm, which a CPU computes with equal bits."""

import re

import jax
import jax.numpy as jnp
import pytest

from parity.channels.dots import compare_dots
from parity.ir.stablehlo.dtypes import read_dtypes
from parity.verdicts import Doubt


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
    assert finding.doubts == (Doubt.HARMLESS,)


@pytest.mark.parametrize(
    ("reference", "candidate", "kinds"),
    [
        (lambda x: x * jax.lax.rsqrt(x), lambda x: x / jnp.sqrt(x), []),
        (lambda x: jnp.log(jnp.exp(x)), lambda x: jnp.exp(x), []),
        (lambda x: jnp.exp(x), lambda x: jnp.einsum("ab,c->abc", jnp.exp(x), x[0]), []),
        (
            lambda x: jnp.log(jnp.exp(x)),
            lambda x: jnp.exp(x).astype("bfloat16") @ x.T.astype("bfloat16"),
            ["log", "dot"],
        ),
        (lambda x: x * jax.nn.sigmoid(x), lambda x: x / (1 + jnp.exp(-x)), []),
        (lambda x: x * jax.lax.rsqrt(x), lambda x: x / jnp.sqrt(x.astype("bfloat16")), ["rsqrt", "sqrt"]),
    ],
)
def test_another_formula_is_no_matter_of_types(reference, candidate, kinds):
    x = jnp.ones((3, 4))
    found = compare_dots(*(read_dtypes(jax.jit(side).lower(x)) for side in (reference, candidate)))
    assert [finding.where.partition(" ")[0] for finding in found.findings] == kinds
    assert {finding.doubts for finding in found.findings} <= {(Doubt.HARMLESS,)}


def _narrow(x):
    return x.astype("bfloat16")


def _total(x):
    return jnp.exp(x)


def test_the_line_that_gives_an_operand_its_type_is_named_beside_its_use():
    sides = (
        jax.jit(lambda x, cast=cast: _total(-cast(x))).lower(jnp.ones((3, 4))) for cast in (jnp.sin, _narrow)
    )
    (finding,) = compare_dots(*map(read_dtypes, sides)).findings
    assert re.search(r" in _total, bf16 since \S+ in _narrow\)", finding.where), finding.where


def _counted(carried):
    count, x = carried
    return count + 1, jnp.sin(x)


def test_a_loop_gives_no_result_the_type_of_another():
    def looped(x):
        carried = jax.lax.while_loop(lambda each: each[0] < 3, _counted, (_narrow(x[0, 0]), x))
        return jnp.exp(carried[1])

    (*_, last) = read_dtypes(jax.jit(looped).lower(jnp.ones((3, 4))))
    assert last.types == "f32 -> f32" and last.since is None


def test_outer_products_in_other_types_differ():
    x = jnp.ones((3, 4))
    outer = lambda x, kind: jnp.einsum("ab,c->abc", jnp.exp(x).astype(kind), x[0].astype(kind))  # noqa: E731
    sides = (jax.jit(outer, static_argnums=1).lower(x, kind) for kind in ("float32", "bfloat16"))
    (finding,) = compare_dots(*map(read_dtypes, sides)).findings
    assert finding.where.startswith("outer product") and "bf16" in finding.candidate


def dotted(x, **options):
    return jnp.einsum("ab,cb->ac", x, x, **options)


def test_types_that_a_caller_of_shared_code_passes_name_the_caller():
    def plain(x):
        return dotted(x)

    def wide(x):
        return dotted(x, preferred_element_type="float32")

    x = jnp.ones((3, 4), "bfloat16")
    (finding,) = compare_dots(*(read_dtypes(jax.jit(side).lower(x)) for side in (plain, wide))).findings
    assert "wide" in finding.where and "plain" in finding.next_step and not finding.doubts


def test_a_scalar_behind_two_thousand_operations_is_read():
    def deep(x):
        for _ in range(2_000):
            x = x + x
        return jnp.exp(x)

    (found,) = read_dtypes(jax.jit(deep).lower(1.0))
    assert (found.kind, found.sizes) == ("exponential", ())


def test_a_scalar_of_constants_is_no_operation_on_numbers():
    assert read_dtypes(jax.jit(lambda x: x + jnp.exp(jnp.sqrt(jax.lax.full((), 2.0)))).lower(1.0)) == ()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_complex_angles_have_the_digits_of_their_parts(dtype):
    def real(x):
        return jnp.concatenate([jnp.cos(x), jnp.sin(x)]) * jnp.exp(x.astype(dtype))[0]

    def turned(x):
        angle = jnp.exp(1j * x)
        return jnp.concatenate([angle.real, angle.imag]) * jnp.exp(x.astype(dtype))[0]

    x = jax.ShapeDtypeStruct((4,), jnp.float32)
    assert compare_dots(*(read_dtypes(jax.jit(side).lower(x)) for side in (real, turned))).verdict == "equal"
