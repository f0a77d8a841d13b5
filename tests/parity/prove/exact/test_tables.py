"""Integers of a known range: a function of one is a table that is equal to JAX's results."""

import dataclasses
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from campaigns.exact.evaluate import Evaluator

from parity.prove.exact import Link, Named, Relation, equal
from parity.prove.exact.claim import _inputs
from parity.prove.exact.interpreter import Interpreter, Shared

X = jax.ShapeDtypeStruct((2, 3), jnp.int32)
WITHIN = (-6, 12)


def named(function, *shapes):
    program = jax.jit(function, keep_unused=True).lower(*shapes or (X,))
    return Named(program=program, arguments=["x", "z"][: len(shapes) or 1], results=["y"])


def sides(left, right):
    return named(left), named(right)


def relation(ranges, split_axes=()):
    both = [Link(reference=(name,), candidate=(name,)) for name in "xy"]
    return Relation(arguments=both[:1], results=both[1:], ranges=ranges, split_axes={"x": split_axes})


def tiled(x, number=1, place=2, tiles=4):
    """Returns whether an entry of a vocabulary in tiles is the requested one."""
    return jnp.where(x % tiles == number, x // tiles, -1) == place


@pytest.mark.parametrize("split_axes", [(), (0,), (0, 1)], ids=str)
def test_an_entry_of_a_tile_is_an_entry(split_axes):
    found = equal(*sides(tiled, lambda x: x == 9), relation({"x": WITHIN}, split_axes))
    assert found.proved
    assert found.assumptions == ("x is in [-6, 12)",)


@pytest.mark.parametrize("miss", [{"number": 2}, {"place": 1}, {"tiles": 3}], ids=str)
def test_another_entry_is_not(miss):
    found = equal(*sides(lambda x: tiled(x, **miss), lambda x: x == 9), relation({"x": WITHIN}))
    assert not found.proved and "table(x)" in found.difference


def test_a_proof_for_one_range_is_limited_to_it():
    pair = sides(lambda x: x < 12, lambda x: x == x)
    assert equal(*pair, relation({"x": WITHIN})).assumptions == ("x is in [-6, 12)",)
    assert not equal(*pair, relation({"x": (-6, 13)})).proved  # 12 breaks the assumption of the first
    assert not equal(*pair, relation({})).proved


def test_two_integers_are_no_one():
    left = named(lambda x, z: (x < z) & (x > 0), X, X)
    right = named(lambda x, z: (x < x) & (x > 0), X, X)
    links = [Link(reference=(name,), candidate=(name,)) for name in "xz"]
    both = dataclasses.replace(relation({"x": WITHIN, "z": WITHIN}), arguments=links)
    assert not equal(left, right, both).proved


@pytest.mark.parametrize("within", [(0, 0), (0, 5_000)], ids=str)
def test_a_range_that_is_empty_or_too_long_is_refused(within):
    assert "range" in equal(*sides(jnp.sign, jnp.sign), relation({"x": within})).refusal


FUNCTIONS = {
    "divided": lambda x: (x // 4, x % 5, x // -3, jax.lax.rem(x, jnp.int32(3)), jax.lax.div(x, jnp.int32(4))),
    "compared": lambda x: (x == 3, x < 2, (x > 1) & (x < 5), (x > 5) | ~(x > 0), (x > -9) & (x < 99)),
    "chosen": lambda x: (jnp.where(x > 3, x, -x), jnp.clip(x, 0, 4), jnp.abs(x), jnp.sign(x)),
    "converted": lambda x: (x.astype(jnp.uint8) * 40, (x > 0).astype(jnp.int32), x.astype(bool)),
    "wrapped": lambda x: (x * 2**30, x.astype(jnp.int8) * 50),
    "moved": lambda x: (x.T % 3, x[1] // 2, x.reshape(6)[2:4] + 1, jnp.stack([x[1], x[0]]) % 2),
    "real": lambda x: (jnp.where(x % 3 == 1, 2.0, 0.5) * x,),
}


@pytest.mark.parametrize("split_axes", [(), (0,)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tables_equal_jax(name, split_axes):
    x = np.random.default_rng(3).integers(*WITHIN, X.shape).astype(np.int32)
    function = FUNCTIONS[name]
    truth = [np.asarray(y) for y in function(jnp.asarray(x))]
    results = [f"y{place}" for place in range(len(truth))]
    program = Named(program=jax.jit(function).lower(X), arguments=["x"], results=results)
    cache = Shared()
    both, algebra = [Interpreter(program, cache), Interpreter(program, cache)], cache.algebra
    given = _inputs(both, relation({"x": WITHIN}, split_axes), cache.tensors)[0]
    made = both[0].walk(given).values()
    assert any(operator.contains(str(node.params), "table") for node in algebra.terms.nodes)
    for y, expected in zip(made, truth, strict=True):
        np.testing.assert_array_equal(Evaluator(algebra.terms, {"x": x}).tensor(y), expected)
