"""Sharing between both sides of a claim: operations are keyed by content, and similar ones stay distinct."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from campaigns.prover.modules import parse_module

from parity.ir.jax_internals import stablehlo_module
from parity.ir.stablehlo.reader import read_program
from parity.prove.exact import Link, Named, Relation, equal
from parity.prove.exact.contents import content_of

X = jax.ShapeDtypeStruct((3, 3), jnp.float32)


def calling(factor):
    """Calls a function with a name that each of these programs uses."""

    @jax.jit
    def inner(x):
        return jnp.tanh(x) * factor

    return lambda x, y: inner(inner(x)) + y


def looping(loop_indices, sign):
    return lambda x, y: jax.lax.fori_loop(0, loop_indices, lambda i, c: jnp.tanh(c @ x) + sign * y, y)


def looked_up(*table):
    return lambda x, y: x * np.array([table], np.float32) + y


def branching(swapped):
    """Calls a function twice whose branches read its arguments."""

    @jax.jit
    def either(where, x, y):
        return jax.lax.cond(where, lambda: x * 2, lambda: y * 3)

    def run(x, y):
        where = x[0, 0] > 0
        return either(where, x, y) + jnp.tanh(either(where, y, x) if swapped else either(where, x, y))

    return run


SHARED = {
    "twice": calling(2),
    "three times": calling(3),
    "two turns": looping(2, 1),
    "three turns": looping(3, 1),
    "another sign in the loop": looping(2, -1),
    "the other one captured": lambda x, y: jax.lax.fori_loop(0, 2, lambda i, c: jnp.tanh(c @ y) + x, y),
    "branches": branching(swapped=False),
    "branches of others": branching(swapped=True),
    "a branch of the first": lambda x, y: jax.lax.cond(x[0, 0] > 0, lambda: jnp.tanh(x), lambda: x - 2 * y),
    "a branch of the second": lambda x, y: jax.lax.cond(x[0, 0] > 0, lambda: jnp.tanh(y), lambda: x - 2 * y),
    "a table": looked_up(1, 2, 3),
    "another table": looked_up(1, 2, 4),
    "rows": lambda x, y: x.sum(0, keepdims=True) + y,
    "columns": lambda x, y: x.sum(1, keepdims=True) + y,
    "above": lambda x, y: jnp.where(x > y, x, y),
    "below": lambda x, y: jnp.where(x < y, x, y),
}


def named(function, arguments=("x", "y")):
    return Named(
        program=jax.jit(function, keep_unused=True).lower(*(X,) * len(arguments)),
        arguments=arguments,
        results=["out"],
    )


def relation(arguments=("x", "y"), split_axes=()):
    links = [Link(reference=(name,), candidate=(name,)) for name in arguments]
    result = Link(reference=("out",), candidate=("out",))
    return Relation(arguments=links, results=[result], split_axes={name: split_axes for name in arguments})


@pytest.mark.long
@pytest.mark.parametrize("split_axes", [(), (0,)], ids=str)
def test_only_equal_programs_share_their_results(split_axes):
    for left, right in itertools.product(SHARED, repeat=2):
        found = equal(named(SHARED[left]), named(SHARED[right]), relation(split_axes=split_axes))
        assert found.proved == (left == right), (left, right, found)


def test_placement_is_no_content_and_all_else_is():
    program = jax.jit(lambda x: jnp.tanh(x) @ x).lower(X)
    text = str(stablehlo_module(program))

    def content(text):
        read = read_program(parse_module(text, stablehlo_module(program)), ignore_shardings=True)
        return [content_of(op, {}) for op in read.body.ops]

    plain = content(text)
    placed = text.replace(
        "stablehlo.tanh %arg0",
        'stablehlo.tanh %arg0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"a"}, {}]>]>}',
    ).replace("{\n", '{\n  sdy.mesh @mesh = <["a"=2]>\n', 1)
    assert placed.count("sdy") == 3
    assert content(placed) == plain
    assert content(text.replace("stablehlo.tanh", "stablehlo.sine")) != plain
    assert content(text.replace("contracting_dims = [1] x [0]", "contracting_dims = [0] x [0]")) != plain
