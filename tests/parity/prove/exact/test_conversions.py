"""All pairs of element types: constants fold to the numbers that compiled programs make of computed operands."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.prove.exact.algebra import Algebra
from parity.prove.exact.scalars import rounded
from parity.prove.exact.terms import REAL, RefusalError, Terms, sort_of
from parity.prove.rules.elementwise import _computed
from parity.prove.rules.terms import Term
from parity.prove.rules.types import numpy_type

INTEGERS = {"i1": "bool"} | {
    f"{sign}i{bits}": f"{'u' if sign else ''}int{bits}"
    for sign in ("", "u")
    for bits in (2, 4, 8, 16, 32, 64)
}
FLOATS = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "f8E3M4": "float8_e3m4",
    "f8E4M3": "float8_e4m3",
    "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2": "float8_e5m2",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
}
TYPES = INTEGERS | FLOATS
ENDS = [
    sign * 2**bits + more
    for bits in (1, 3, 4, 7, 8, 15, 16, 31, 32)
    for sign in (1, -1)
    for more in (-1, 0, 1)
]
MORE = [
    *(0.5, -0.5, 0.99, 1.5, 2.5, -1.9, 16.5, -128.9, 300, 32767.5, 3e9, 1e19, 1e30, 3.39e38, 3.4028235e38)
]
OVER = [
    *(448, 464, 465, 480, 57344, 61440, 61441, 65504, 65519, 65520, 2**53 + 1, 2**63, -(2**63), 2**64 - 1)
]
SPECIAL = [*(-0.0, 1e-3, 1e300, -1e300, math.inf, -math.inf, math.nan)]


def values(element):
    """Returns numbers at and near the ends of element types, as an array of one of them."""
    if element == "i1":
        return np.array([False, True])
    dtype, numbers = jnp.dtype(TYPES[element]), [0, *ENDS, *MORE, *OVER]
    if element in FLOATS:
        with np.errstate(all="ignore"):
            return np.array([*numbers, *SPECIAL], np.float64).astype(dtype)
    low, high = int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
    known = sorted({min(max(int(number), low), high) for number in numbers})
    return np.array(known, np.uint64 if low == 0 else np.int64).astype(dtype)


def folded(algebra, number, source, target):
    """Returns the value that a constant becomes: a number, or ``inf``, ``-inf``, ``nan``."""
    source_sort, target_sort = sort_of(source), sort_of(target)
    number = float(number) if source_sort == REAL else int(number)
    cell = algebra.map("convert", [algebra.element(number, source_sort)], target_sort)
    if target_sort == REAL:
        cell = algebra.narrowed(cell, target)
    literal = algebra.literal(cell)
    made = algebra.value(cell) if literal is None else literal
    assert made is not None
    return made


@pytest.mark.slow
@pytest.mark.parametrize("source", TYPES)
def test_constants_are_converted_like_computed_values_in_compiled_programs(source):
    given, algebra = values(source), Algebra(Terms())
    with jax.enable_x64(True):
        convert = jax.jit(lambda x: {t: x.astype(name) for t, name in TYPES.items()})
        made = {target: np.asarray(x) for target, x in convert(given).items()}
    for target, row in made.items():
        for number, one in zip(given, row, strict=True):
            known, where = folded(algebra, number, source, target), (source, str(number), target, str(one))
            if target in INTEGERS:
                assert known == int(one), where
            elif math.isfinite(one):
                assert rounded(known, target) == float(one), where
            else:
                assert known == str(float(one)), where


def test_floats_of_four_bits_are_refused():
    """XLA converts their 6 to 127 in int8, since 6 is their maximum."""
    with pytest.raises(RefusalError):
        sort_of("f4E2M1FN")


@pytest.mark.slow
@pytest.mark.parametrize("source", [each for each in INTEGERS if numpy_type(each)])
def test_the_rules_of_the_prover_fold_integers_likewise(source):
    given = values(source)
    targets = [each for each in INTEGERS if numpy_type(each)]
    with jax.enable_x64(True):
        made = jax.jit(lambda x: [x.astype(INTEGERS[t]) for t in targets])(given)
    for target, row in zip(targets, made, strict=True):
        kind = numpy_type(target)
        found = _computed(Term("convert", "", (), (source,), target), [given], kind)
        np.testing.assert_array_equal(found.astype(kind), np.asarray(row), strict=True)
