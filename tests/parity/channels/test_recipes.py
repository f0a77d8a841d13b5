"""Recipes of initial leaves: one number for leaves that are equal for every key, and never a wrong one."""

import functools

import jax
import jax.numpy as jnp
import pytest

from parity.values.rng.recipes import Recipes

KEY = jax.random.key(0)
SHAPE = (6, 4)


def drawn(key, scale=0.5, shape=SHAPE):
    return scale * jax.random.truncated_normal(key, -2.0, 2.0, shape)


def stacked(key, axis=0, layers=3):
    rows = jax.lax.scan(lambda carry, one: (carry, drawn(one)), 0.0, jax.random.split(key, layers))[1]
    return jnp.moveaxis(rows, 0, axis)


def recipe_of(recipes, *functions):
    def create(key):
        return [function(key) for function in functions]

    names = [str(index) for index, _ in enumerate(functions)]
    return [recipes.of(jax.jit(create).trace(KEY).jaxpr, names)[name] for name in names]


def both(one, other):
    """Returns whether two programs are equal, and whether their distributions are equal."""
    recipes = Recipes()
    (left,), (right,) = recipe_of(recipes, one), recipe_of(recipes, other)
    first, second = recipes.distribution([left]), recipes.distribution([right])
    return left.exact == right.exact, first is not None and first == second


def nested(key):
    return jax.jit(lambda key: jax.checkpoint(drawn)(jax.random.clone(key)))(key)


def of_carried_numbers(key, start=1.0):
    """Each row is a different multiple: a single iteration does not determine its scale."""

    def iteration(scale, one):
        return scale * 2, scale * drawn(one)

    return jax.lax.scan(iteration, jnp.asarray(start), jax.random.split(key, 3))[1]


def of_keys_carried(key):
    def iteration(key, _):
        key, one = jax.random.split(key)
        return key, drawn(one)

    return jax.lax.scan(iteration, key, None, 3)[1]


def of_a_fixed_key(key):
    return drawn(jax.random.key(7))


def of_fixed_keys_carried(key, layers=3):
    """Only the first iteration draws from a key derived from the program's."""

    def iteration(key, _):
        return jax.random.key(7), drawn(key)

    return jax.lax.scan(iteration, key, None, layers)[1]


def of_stacked_keys(key):
    keys = jax.lax.scan(lambda carry, one: (carry, jax.random.fold_in(one, 2)), 0, jax.random.split(key, 3))[
        1
    ]
    return jax.lax.scan(lambda carry, one: (carry, drawn(one)), 0, keys)[1]


def closing_over_a_key(key, made=jax.random.key(7)):  # noqa: B008
    return drawn(made)


def of_nested_turns(key, outer):
    """All rows have the same numbers, or all columns do."""
    keys = jax.random.split(key, 3)

    def around(carry, one):
        return carry, jax.lax.scan(lambda carry, other: (carry, drawn(one if outer else other)), 0, keys)[1]

    return jax.lax.scan(around, 0, keys)[1]


def twice(key, same):
    first, second = jax.random.split(key)
    return drawn(first) - drawn(first if same else second)


def with_numbers_of_the_key(key):
    return drawn(key) * jax.random.key_data(key).sum().astype(jnp.float32)


@pytest.mark.parametrize(
    ("one", "other", "same", "matching"),
    [
        (drawn, nested, True, True),
        (drawn, lambda key: drawn(jax.random.fold_in(key, 1)), False, True),
        (drawn, functools.partial(drawn, scale=0.6), False, False),
        (drawn, functools.partial(drawn, shape=(4, 6)), False, False),
        (drawn, lambda key: 0.5 * jax.random.normal(key, SHAPE), False, False),
        (drawn, lambda key: drawn(key).astype(jnp.bfloat16).astype(jnp.float32), False, False),
        (drawn, lambda key: jnp.zeros(SHAPE), False, False),
        (lambda key: jnp.ones(SHAPE), lambda key: jnp.ones(SHAPE), True, True),
        (lambda key: jnp.zeros(SHAPE), lambda key: jnp.ones(SHAPE), False, False),
        (lambda key: jnp.zeros(SHAPE), lambda key: -jnp.zeros(SHAPE), False, False),
        (stacked, stacked, True, True),
        (stacked, drawn, False, True),
        (stacked, functools.partial(stacked, axis=1), False, True),
        (stacked, functools.partial(stacked, layers=2), False, True),
        (drawn, lambda key: stacked(key).sum(0), False, False),
        (of_keys_carried, drawn, False, True),
        (
            functools.partial(of_nested_turns, outer=True),
            functools.partial(of_nested_turns, outer=False),
            False,
            True,
        ),
        (
            functools.partial(of_nested_turns, outer=True),
            functools.partial(of_nested_turns, outer=True),
            True,
            True,
        ),
        (of_stacked_keys, drawn, False, True),
        (of_stacked_keys, stacked, False, True),
        (of_fixed_keys_carried, drawn, False, False),
        (of_fixed_keys_carried, of_keys_carried, False, False),
        (of_a_fixed_key, of_a_fixed_key, True, False),
        (of_a_fixed_key, drawn, False, False),
        (closing_over_a_key, drawn, False, False),
        (of_carried_numbers, of_carried_numbers, False, False),
        (of_carried_numbers, functools.partial(of_carried_numbers, start=3.0), False, False),
        (functools.partial(twice, same=False), functools.partial(twice, same=False), True, False),
        (functools.partial(twice, same=False), functools.partial(twice, same=True), False, False),
        (with_numbers_of_the_key, with_numbers_of_the_key, True, False),
    ],
)
def test_only_equal_values_have_one_number(one, other, same, matching):
    assert both(one, other) == (same, matching)
    assert both(other, one) == (same, matching)


def test_leaves_of_one_distribution_have_one_together():
    recipes = Recipes()
    layers = [
        functools.partial(lambda key, number: drawn(jax.random.fold_in(key, number)), number=n)
        for n in range(3)
    ]
    unrolled = recipe_of(recipes, *layers)
    (stack,) = recipe_of(recipes, stacked)
    assert recipes.distribution(unrolled) == recipes.distribution([stack]) is not None
    (other,) = recipe_of(recipes, functools.partial(drawn, scale=0.6))
    assert recipes.distribution([*unrolled, other]) is None
