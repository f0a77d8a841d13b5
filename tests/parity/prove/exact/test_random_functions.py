"""Random functions of floats, integers and booleans: functions with one term compute equal numbers."""

import collections
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from parity.prove.exact import Named
from parity.prove.exact.interpreter import Interpreter, Shared
from parity.prove.exact.relation import atom
from parity.prove.exact.terms import RefusalError

F64, I8, U8, BOOL = jnp.float64, jnp.int8, jnp.uint8, jnp.bool_
INPUTS = (F64, F64, I8, I8, U8, U8)
CONSTANTS = {
    F64: (0, 1, -1, 2, 0.5, 300, -129, np.inf, np.nan),
    I8: (0, 1, -1, 127, -128, 7),
    U8: (0, 1, 255, 7),
    BOOL: (0, 1),
}
VALUES = {
    F64: (0, 1, -1, 2, -0.5, 3, 300, -7.25),
    I8: (0, 1, -1, 127, -128, 5, -3),
    U8: (0, 1, 255, 128, 5, 7),
}
ORDERS = (lax.lt, lax.le, lax.gt, lax.ge, lax.eq, lax.ne)
BITS = (lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)
SHIFTS = (lax.shift_left, lax.shift_right_arithmetic, lax.shift_right_logical)
RING = (lax.add, lax.sub, lax.mul, lax.max, lax.min)
UNARY = {
    F64: (
        lax.neg,
        lax.abs,
        lax.sign,
        lax.floor,
        lax.ceil,
        lax.exp,
        lax.log,
        lax.sqrt,
        lax.square,
        lax.logistic,
    ),
    I8: (lax.neg, lax.abs, lax.sign, lax.bitwise_not, lax.population_count),
    U8: (lax.sign, lax.bitwise_not, lax.population_count),
    BOOL: (lax.bitwise_not,),
}
BINARY = {
    F64: (*RING, lax.div, lax.rem, lax.pow),
    I8: (*RING, *BITS, *SHIFTS),
    U8: (*RING, *BITS, *SHIFTS),
    BOOL: BITS,
}
SIZE, PROGRAMS = 8, 120


def leaf(rng, sort):
    if sort is not BOOL and rng.random() < 0.65:
        place = rng.choice([i for i, other in enumerate(INPUTS) if other is sort])
        return lambda given: given[place]
    number = rng.choice(CONSTANTS[sort])
    return lambda given: lax.full((SIZE,), number, sort)


def function(rng, sort, depth):
    """Returns a random function of arguments of `INPUTS` to elements of ``sort``."""
    if depth == 0:
        return leaf(rng, sort)
    kind, below = rng.random(), depth - 1
    if sort is BOOL and kind < 0.5:
        other, apply = rng.choice((F64, I8, U8)), rng.choice(ORDERS)
        operands = [function(rng, other, below), function(rng, other, rng.randrange(depth))]
    elif kind < 0.2:
        apply = lax.select
        operands = [function(rng, each, rng.randrange(depth)) for each in (BOOL, sort, sort)]
    elif kind < 0.4:
        other = rng.choice([each for each in (F64, I8, U8, BOOL) if each is not sort])
        apply, operands = lambda x: lax.convert_element_type(x, sort), [function(rng, other, below)]
    elif kind < 0.45 and sort is not BOOL:
        apply, operands = lax.clamp, [function(rng, sort, rng.randrange(depth)) for _ in range(3)]
    elif kind < 0.65:
        apply, operands = rng.choice(UNARY[sort]), [function(rng, sort, below)]
    else:
        apply = rng.choice(BINARY[sort])
        operands = [function(rng, sort, below), function(rng, sort, rng.randrange(depth))]
        rng.shuffle(operands)
    return lambda given: apply(*[operand(given) for operand in operands])


def classes(seed):
    """Returns, by term, the numbers that functions compute; the inputs cause hardly any rounding."""
    rng, found, cache = random.Random(seed), collections.defaultdict(list), Shared()
    given = [
        np.random.default_rng((seed, i)).choice(np.array(VALUES[s], s), SIZE) for i, s in enumerate(INPUTS)
    ]
    names = [f"x{i}" for i in range(len(INPUTS))]
    for _ in range(PROGRAMS):
        made = function(rng, rng.choice((F64, F64, I8, U8, BOOL)), rng.choice((1, 2, 2, 3)))
        program = jax.jit(lambda *given, made=made: made(given), keep_unused=True).lower(*given)
        side = Interpreter(Named(program=program, arguments=names, results=["y"]), cache)
        inputs = {name: atom(cache.tensors, name, *side.types[name]) for name in names}
        try:
            term = side.walk(inputs)["y"]
        except RefusalError:
            continue
        found[term.sort, term.only].append(np.asarray(program.compile()(*given)))
    return found


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_functions_of_one_term_compute_the_same(seed):
    with jax.enable_x64(True):
        found = classes(seed)
    assert sum(len(rows) > 1 for rows in found.values()) > 3
    for (sort, _), (first, *others) in found.items():
        for other in others:
            have = np.isfinite(first) & np.isfinite(other) if sort == "real" else np.ones(SIZE, bool)
            np.testing.assert_allclose(first[have].astype(float), other[have].astype(float), rtol=1e-9)
