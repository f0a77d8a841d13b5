"""Keys derived in Python with Threefry, JAX's default generator: compiling it takes as long as thousands of keys."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["DERIVE", "derive_keys"]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
DERIVE = frozenset({"random_fold_in", "random_split"})
PARITY, WORD = 0x1BD11BDA, 0xFFFFFFFF
MOST_KEYS = 1_024


def derive_keys(equation: Any, keys: jax.Array, *data: jax.Array) -> jax.Array | None:
    """Returns the result of one of `DERIVE`, given numbers to fold in; None for many keys or another generator."""
    if jax.random.key_impl(keys) != "threefry2x32" or not jax.config.jax_threefry_partitionable:
        return None
    words, shape = np.asarray(jax.random.key_data(keys)), equation.params.get("shape", ())
    counts = np.asarray(data[0]) if data else np.arange(math.prod(shape), dtype=np.uint32).reshape(shape)
    first, second = (words[..., at].reshape(keys.shape + (1,) * len(shape)) for at in (0, 1))
    given = np.broadcast(first, second, counts)
    if given.size > MOST_KEYS:
        return None
    made = np.array([_threefry(*map(int, row)) for row in given], np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(made.reshape(*given.shape, 2)))


def _threefry(first: int, second: int, count: int) -> tuple[int, int]:
    """Returns the two words that a key of two words gives for a count."""
    schedule = (first, second, first ^ second ^ PARITY)
    left, right = first, (second + count) & WORD
    for number in range(5):
        for bits in ROTATIONS[number % 2]:
            left = (left + right) & WORD
            right = ((right << bits | right >> (32 - bits)) & WORD) ^ left
        left = (left + schedule[(number + 1) % 3]) & WORD
        right = (right + schedule[(number + 2) % 3] + number + 1) & WORD
    return left, right
