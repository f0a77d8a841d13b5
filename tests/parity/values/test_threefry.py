"""Keys are derived without XLA, and are those of JAX, bit by bit."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.ir import jaxprs
from parity.values.rng import draws
from parity.values.rng.demand import Demand

KEY = jax.random.key(2**32 - 3)
KEYS = jax.random.split(jax.random.key(5), (3, 2))
DATA = 715_827_883 * jnp.arange(6, dtype=jnp.uint32).reshape(3, 2)
Function = Callable[..., jax.Array]


def each(function: Function) -> Function:
    return jax.vmap(jax.vmap(function))


@pytest.fixture
def left_to_jax(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations on keys that JAX runs."""
    found: list[str] = []

    def bind(equation, inputs):
        found.extend({equation.primitive.name} & draws.ON_WORDS.keys())
        return jaxprs.bind(equation, inputs)

    monkeypatch.setattr(draws, "bind", bind)
    return found


def followed(function: Function, *arguments: jax.Array) -> jax.Array:
    jaxpr = jax.make_jaxpr(function)(*arguments)
    (found,) = draws.Recorder(Demand(jaxpr, [0])).run(jaxpr, arguments)
    return found


@pytest.mark.parametrize(
    "function, arguments",
    [
        (jax.random.fold_in, (KEY, jnp.uint32(2**32 - 1))),
        (each(lambda number: jax.random.fold_in(KEY, number)), (DATA,)),
        (each(lambda key: jax.random.fold_in(key, 9)), (KEYS,)),
        (each(jax.random.fold_in), (KEYS, DATA)),
        (lambda key: jax.random.split(key, (4, 3)), (KEY,)),
        (lambda key: jax.random.split(key, 2_000), (KEY,)),
        (each(lambda key: jax.random.split(key, 5)), (KEYS,)),
        (lambda keys: jax.lax.map(lambda row: jax.random.fold_in(row[1], 9), keys), (KEYS,)),
        (lambda keys: jnp.transpose(each(jax.random.clone)(keys), (1, 0)), (KEYS,)),
        (lambda keys: jax.lax.broadcast_in_dim(keys, (4, 3, 5, 2), (1, 3)), (KEYS,)),
    ],
)
def test_derived_keys_have_the_bits_of_jax(
    function: Function, arguments: tuple[jax.Array, ...], left_to_jax: list[str]
) -> None:
    found, expected = followed(function, *arguments), function(*arguments)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(expected))
    assert not left_to_jax


def test_other_generators_are_left_to_jax(left_to_jax: list[str]) -> None:
    followed(lambda key: jax.random.split(key, 3), jax.random.key(1, impl="rbg"))
    assert left_to_jax == ["random_split"]


def test_the_older_way_to_split_is_left_to_jax(left_to_jax: list[str]) -> None:
    with jax.threefry_partitionable(False):
        followed(jax.random.split, KEY)
    assert left_to_jax == ["random_split"]


def test_the_generator_of_the_key_counts_not_the_default_one():
    with jax.default_prng_impl("rbg"):
        found = followed(jax.random.fold_in, KEY, jnp.uint32(7))
    assert np.array_equal(
        jax.random.key_data(found), jax.random.key_data(jax.random.fold_in(KEY, jnp.uint32(7)))
    )
