"""One-sided leaves and different integer types: RNG state that only one side has, and counters."""

import dataclasses
import math
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np

from parity.builds.build import SEED
from parity.builds.tree import as_data, is_key
from parity.builds.weights.map import WeightMap
from parity.ir.jax_internals import key_implementation

POINTER = 8
"""Bytes of a result's pointer in the table of results."""

ROWS, COLUMNS = 8, 128
"""The largest tile of a TPU's memory, for numbers of 32 bits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnpairedArray:
    """One array without a partner; its forms inside nested scans, which remove its leading axes, follow the whole.

    Args:
        traced: its forms in the notation of traced programs, such as ``key<fry>[3]``.
        compiled: its forms in the notation of compiled programs, such as ``u32[3,2]``.
        size: its bytes on a device, and those of a pointer to it.
    """

    traced: tuple[str, ...]
    compiled: tuple[str, ...]
    size: int


def describe_unpaired(
    abstract: Mapping[str, Any], paths: Collection[str], *, tiled: bool = False
) -> list[UnpairedArray]:
    """Describes the leaves of one side that have no partner.

    Args:
        abstract: ``{path: jax.ShapeDtypeStruct}`` of that side's state.
        tiled: True if arrays are stored in tiles, as on a TPU.
    """
    found = []
    for path in paths:
        leaf = abstract[path]
        data = as_data(leaf)
        kind = {"i": "s", "u": "u", "f": "f"}.get(data.dtype.kind, data.dtype.kind)
        depths = range(max(1, len(leaf.shape)))
        shapes = [",".join(map(str, data.shape[depth:])) for depth in depths]
        found.append(
            UnpairedArray(
                traced=tuple(f"{leaf.dtype}{list(leaf.shape[depth:])}" for depth in depths),
                compiled=tuple(f"{kind}{8 * data.dtype.itemsize}[{shape}]" for shape in shapes),
                size=math.prod(_in_tiles(data.shape) if tiled else data.shape) * data.dtype.itemsize
                + POINTER,
            )
        )
    return found


def _in_tiles(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of an array padded to tiles of 1, 2, 4 or 8 rows of 128 numbers."""
    *outer, rows, columns = (1, 1, *shape)
    tile = next((size for size in (1, 2, 4) if rows <= size), ROWS)
    return (*outer, -(-rows // tile) * tile, -(-columns // COLUMNS) * COLUMNS)


def beginning(path: str, leaf: Any) -> np.ndarray:
    """Returns an initial value for a leaf, on the host: a key derived from its path, or zeros.

    Returns:
        The array; a typed key as uint32 data.
    """
    if not is_key(leaf):
        return np.zeros(leaf.shape, leaf.dtype)
    root = jax.random.key(SEED, impl=key_implementation(leaf.dtype))
    key = jax.random.fold_in(root, np.uint32(zlib.crc32(path.encode())))
    return np.asarray(jax.random.key_data(jax.random.split(key, leaf.shape) if leaf.shape else key))


def typed(leaf: Any, array: Any) -> Any:
    """Returns an array as a program takes it: the uint32 data of keys as typed keys.

    Args:
        leaf: has the dtype that the program takes.
        array: on the host, or placed on devices; keys of a host array are copied.
    """
    if not is_key(leaf):
        return array
    data = array if isinstance(array, jax.Array) else jax.device_put(array, may_alias=False)
    return jax.random.wrap_key_data(data, impl=key_implementation(leaf.dtype))


def split_step(path: str) -> tuple[str, str]:
    """Returns a step's prefix, such as ``step1/``, and the leaf's path; the prefix is empty if there is one step."""
    first, _, rest = path.partition("/")
    stepped = rest and first.startswith("step") and first[4:].isdigit()
    return (f"{first}/", rest) if stepped else ("", path)


def without_unpaired(
    outputs: Mapping[str, Mapping[str, np.ndarray]], paths: Collection[str]
) -> dict[str, dict[str, np.ndarray]]:
    """Returns outputs, ``{group: {path: array}}``, without the leaves that have no partner, in all steps."""
    gone = set(paths)
    return {
        group: {path: array for path, array in leaves.items() if not gone & {path, split_step(path)[1]}}
        for group, leaves in outputs.items()
    }


def with_counters_of(
    reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the candidate's state with counters cast to the reference's integer types if these hold the number."""

    def converted(path: str, array: np.ndarray) -> np.ndarray:
        wanted = reference.get(path)
        if wanted is None or any(each.shape or each.dtype.kind not in "iu" for each in (wanted, array)):
            return array
        same = array.astype(wanted.dtype)
        return same if int(same) == int(array) else array

    return {path: converted(path, array) for path, array in candidate.items()}


def carry_state(
    weights: WeightMap, abstract: Mapping[str, Any], state: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the reference's state as the candidate's, in separate buffers.

    A leaf is cast to the dtype that the candidate stores: the channel ``tree`` reports a difference.
    """

    def stored(path: str, array: np.ndarray) -> np.ndarray:
        like = abstract[path]
        return np.array(array, copy=True, dtype=None if is_key(like) else like.dtype)

    carried = weights.to_candidate(state) | {
        path: beginning(path, abstract[path]) for path in weights.alone[1]
    }
    return {path: stored(path, array) for path, array in carried.items()}


def rename_to_reference(weights: WeightMap, leaves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the candidate's leaves under the reference's paths; others, such as ``logits``, keep their paths."""
    targets = {path for entry in weights.entries for path in entry.candidate}
    steps: dict[str, dict[str, np.ndarray]] = {}
    for path, array in leaves.items():
        prefix, name = split_step(path)
        steps.setdefault(prefix, {})[name] = array
    renamed: dict[str, np.ndarray] = {}
    for prefix, group in steps.items():
        mapped = weights.to_reference({path: array for path, array in group.items() if path in targets})
        rest = {path: array for path, array in group.items() if path not in targets}
        renamed.update({prefix + path: array for path, array in (mapped | rest).items()})
    return renamed
