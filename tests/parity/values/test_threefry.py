"""Keys derived in Python are those of JAX, bit by bit."""

import types
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.values.rng.threefry import MOST_KEYS, derive_keys

KEY = jax.random.key(2**32 - 3)
KEYS = jax.random.split(jax.random.key(5), (3, 2))
DATA = 715_827_883 * jnp.arange(6, dtype=jnp.uint32).reshape(3, 2)


def derived(keys: jax.Array, *data: jax.Array, **params: object) -> jax.Array | None:
    return derive_keys(types.SimpleNamespace(params=params), keys, *data)


def each(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    return jax.vmap(jax.vmap(function))


@pytest.mark.parametrize(
    "keys, data, expected",
    [
        (KEY, jnp.uint32(2**32 - 1), jax.random.fold_in(KEY, np.uint32(2**32 - 1))),
        (KEY, DATA, each(lambda number: jax.random.fold_in(KEY, number))(DATA)),
        (KEYS, jnp.uint32(9), each(lambda key: jax.random.fold_in(key, 9))(KEYS)),
        (KEYS, DATA, each(jax.random.fold_in)(KEYS, DATA)),
    ],
)
def test_folding_in_gives_the_bits_of_jax(keys: jax.Array, data: jax.Array, expected: jax.Array) -> None:
    found = derived(keys, data)
    assert found is not None
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(expected))


@pytest.mark.parametrize(
    "keys, shape, expected",
    [
        (KEY, (4, 3), jax.random.split(KEY, (4, 3))),
        (KEYS, (5,), each(lambda key: jax.random.split(key, 5))(KEYS)),
    ],
)
def test_splitting_gives_the_bits_of_jax(
    keys: jax.Array, shape: tuple[int, ...], expected: jax.Array
) -> None:
    found = derived(keys, shape=shape)
    assert found is not None
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(expected))


def test_other_generators_and_many_keys_are_left_to_jax() -> None:
    assert derived(jax.random.key(1, impl="rbg"), jnp.uint32(1)) is None
    assert derived(KEY, shape=(MOST_KEYS + 1,)) is None
    assert derived(KEY, shape=(2,)) is not None
    with jax.threefry_partitionable(False):
        assert derived(KEY, shape=(2,)) is None
