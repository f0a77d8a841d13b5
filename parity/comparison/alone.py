"""What the sides may hold otherwise: RNG state of one side alone, and counters in other integers."""

import dataclasses
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.jax_internals import key_implementation

__all__ = ["POINTER", "Alone", "arrays_alone", "beginning", "with_counters_of", "without_alone"]

POINTER = 8
"""Bytes that a result takes in the table of results."""

SEED = 20_240_229


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alone:
    """One array without a partner, in the words of programs.

    Args:
        traced: such as ``key<fry>[3]``.
        compiled: such as ``u32[3,2]``.
        size: its bytes, and those of a pointer to it.
    """

    traced: str
    compiled: str
    size: int


def arrays_alone(abstract: Mapping[str, Any], paths: Collection[str]) -> list[Alone]:
    """Describes the leaves of one side that have no partner.

    Args:
        abstract: ``{path: jax.ShapeDtypeStruct}`` of that side's state.
        paths: of the leaves.
    """
    found = []
    for path in paths:
        leaf = abstract[path]
        data = leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data = jax.eval_shape(jax.random.key_data, leaf)
        kind = {"i": "s", "u": "u", "f": "f"}.get(data.dtype.kind, data.dtype.kind)
        sizes = ",".join(map(str, data.shape))
        found.append(
            Alone(
                traced=f"{leaf.dtype}{list(leaf.shape)}",
                compiled=f"{kind}{8 * data.dtype.itemsize}[{sizes}]",
                size=int(np.prod(data.shape)) * data.dtype.itemsize + POINTER,
            )
        )
    return found


def beginning(path: str, leaf: Any) -> np.ndarray:
    """Returns a value that a leaf may start from, on the host: a key of its own, or zeros.

    Args:
        path: of the leaf, which its key is derived from.
        leaf: its ``jax.ShapeDtypeStruct``.

    Returns:
        The array; a typed key as uint32 data.
    """
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.zeros(leaf.shape, leaf.dtype)
    root = jax.random.key(SEED, impl=key_implementation(leaf.dtype))
    key = jax.random.fold_in(root, np.uint32(zlib.crc32(path.encode())))
    return np.asarray(jax.random.key_data(jax.random.split(key, leaf.shape) if leaf.shape else key))


def without_alone(
    outputs: Mapping[str, Mapping[str, np.ndarray]], paths: Collection[str]
) -> dict[str, dict[str, np.ndarray]]:
    """Returns outputs without the leaves that have no partner, whatever step they are of.

    Args:
        outputs: ``{group: {path: array}}``; with several steps the paths begin with ``step1/`` and so on.
        paths: of the leaves.
    """
    gone = set(paths)

    def kept(path: str) -> bool:
        first, _, rest = path.partition("/")
        return path not in gone and not (first.startswith("step") and rest in gone)

    return {
        group: {path: array for path, array in leaves.items() if kept(path)}
        for group, leaves in outputs.items()
    }


def with_counters_of(
    reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the candidate's state, its counters in the integers of the reference where they hold the number.

    Args:
        reference, candidate: states by the same paths.
    """

    def converted(path: str, array: np.ndarray) -> np.ndarray:
        wanted = reference.get(path)
        if wanted is None or wanted.dtype == array.dtype or wanted.shape or array.shape:
            return array
        if wanted.dtype.kind not in "iu" or array.dtype.kind not in "iu":
            return array
        same = array.astype(wanted.dtype)
        return same if int(same) == int(array) else array

    return {path: converted(path, array) for path, array in candidate.items()}
