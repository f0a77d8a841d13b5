"""State as ``{path: leaf}``, independent of the framework."""

import dataclasses
import enum
from collections.abc import Collection, Mapping, Set
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx
from jax.experimental import multihost_utils

from parity.verdicts import repeated

Flat = dict[str, Any]


class Role(enum.StrEnum):
    """Purpose of a leaf; only leaves of the same role are paired."""

    PARAMS = "params"
    OPTIMIZER = "optimizer"
    RNG = "rng"
    STATE = "state"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaf:
    """One array of a state, without its values.

    Args:
        path: names from the root, joined by ``/``.
        shape, dtype: shape and dtype of the array; a typed key has a dtype such as ``key<fry>``.
        logical_axes: a name or None per dimension; None if the model gave none.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    logical_axes: tuple[str | None, ...] | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))


def is_counter(leaf: Leaf) -> bool:
    """True for a counter, such as a step number: its value is compared, but not its integer dtype."""
    return not leaf.shape and leaf.role is not Role.PARAMS and leaf.dtype.startswith(("int", "uint"))


def path_name(keys: jax.tree_util.KeyPath) -> str:
    """Returns the names of a tree's keys, joined by ``/``."""
    return jax.tree_util.keystr(keys, simple=True, separator="/")


def _unboxed(box: linen.meta.AxisMetadata) -> Any:
    """Returns the content of a box, without the sharding constraint of a box with a mesh, which needs arrays."""
    return box.unbox(apply_constraint=False) if isinstance(box, linen.Partitioned) else box.unbox()


def _value(node: Any) -> Any:
    if isinstance(node, linen.Partitioned):
        arrays = jax.tree.leaves(node.value)  # none in the box of a leaf that an optimizer masks
        abstract = any(isinstance(array, jax.ShapeDtypeStruct) for array in arrays)
        return node.unbox(apply_constraint=bool(arrays) and not abstract)
    if isinstance(node, linen.meta.AxisMetadata):
        return _unboxed(node)
    return node.get_value() if isinstance(node, nnx.Variable) else node


def _entries(tree: Any) -> list[tuple[str, Any, Any]]:
    """Returns ``(path, holder, array)`` of each array; a holder may have several, such as sown values."""
    holders, _ = jax.tree_util.tree_flatten_with_path(
        tree, is_leaf=lambda node: isinstance(node, linen.meta.AxisMetadata | nnx.Variable)
    )
    entries = [
        (path_name((*path, *inner)), holder, array)
        for path, holder in holders
        for inner, array in jax.tree_util.tree_flatten_with_path(_value(holder))[0]
    ]
    if several := repeated(path for path, *_ in entries):
        raise ValueError(f"state: several leaves at {several}; expected one; rename keys that hold a '/'")
    return entries


def flatten(tree: Any) -> Flat:
    """Returns ``{path: array}`` of any tree; Linen boxes and NNX Variables are replaced by their values."""
    return {path: array for path, _, array in _entries(tree)}


def is_key(value: Any) -> bool:
    """True for a typed key, an array of them, or its type."""
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _role(path: str, node: Any, value: Any, optimizers: Set[str], states: Set[str]) -> Role:
    if is_key(value) or isinstance(node, nnx.RngState):
        return Role.RNG
    parts, collection = path.split("/"), _collection(path, states)
    inside = isinstance(node, nnx.OptState) or collection == "opt_state"
    if inside or any("/".join(parts[:depth]) in optimizers for depth in range(len(parts))):
        return Role.OPTIMIZER  # its moments may be `nnx.Param`
    if isinstance(node, nnx.Variable):
        return Role.PARAMS if isinstance(node, nnx.Param) else Role.STATE
    top = {"params": Role.PARAMS, "step": Role.OPTIMIZER}
    return top.get(collection, Role.STATE)


def _optimizers(tree: Any) -> set[str]:
    """Returns the paths of the states of Optax's optimizers, in any field."""

    def is_state(node: Any) -> bool:
        own = type(node).__module__.partition(".")[0] == "optax"
        return own and not isinstance(node, optax.EmaState | optax.LookaheadParams)

    nodes, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_state)
    return {path_name(path) for path, node in nodes if is_state(node)}


def _states(paths: Collection[str]) -> set[str]:
    """Returns the paths of the nodes that hold ``params``; only of those with an ``opt_state`` if there are any."""
    holding, trained = (
        {above for path in paths for above, found, _ in [f"/{path}".partition(f"/{name}/")] if found}
        for name in ("params", "opt_state")
    )
    return holding & trained or holding


def _collection(path: str, states: Set[str]) -> str:
    """Returns the collection of a leaf of Linen state: the name below the outermost of the states around it."""
    parts = path.split("/")
    return next((parts[at] for at in range(len(parts)) if "/".join(["", *parts[:at]]) in states), parts[0])


def _axes(node: Any) -> tuple[str | None, ...] | None:
    if isinstance(node, linen.Partitioned):
        return tuple(node.names)
    if isinstance(node, nnx.Variable):
        names = node.get_metadata().get("out_sharding")
        return tuple(names) if names is not None else None
    return None


def describe(tree: Any) -> dict[str, Leaf]:
    """Returns ``{path: Leaf}`` of a state that still has its boxes or Variables."""
    leaves, optimizers, entries = {}, _optimizers(tree), _entries(tree)
    states = _states([path for path, *_ in entries])
    for path, node, value in entries:
        leaves[path] = Leaf(
            path=path,
            shape=tuple(value.shape),
            dtype=str(value.dtype),
            role=_role(path, node, value, optimizers, states),
            logical_axes=_axes(node),
        )
    return leaves


class Codec:
    """Rebuilds a tree from ``{path: array}``; boxes are dropped, Variables keep type and metadata."""

    def __init__(self, example: Any):
        unboxed = linen.meta.map_axis_meta(_unboxed, example)
        self.paths = [path for path, *_ in _entries(unboxed)]
        self._structure = jax.tree.structure(unboxed)

    def restore(self, flat: Mapping[str, Any]) -> Any:
        """Returns the tree with the arrays of ``flat``, which must be those of all leaves."""
        missing, extra = sorted(set(self.paths) - set(flat)), sorted(set(flat) - set(self.paths))
        if missing or extra:
            raise ValueError(
                f"state: missing leaves {missing}, unexpected leaves {extra}; expected {len(self.paths)}"
            )
        return jax.tree.unflatten(self._structure, [flat[path] for path in self.paths])


def as_data(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """Returns the shape and dtype of an array on the host; a typed key becomes its uint32 data."""
    return jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """True if two arrays have the same dtype, shape and bits."""
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def differing(left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> list[str]:
    """Returns the names of arrays that differ in shape, dtype or bits, or that only one side has."""
    shared = left.keys() & right.keys()
    same = {name for name in shared if same_bits(left[name], right[name])}
    return sorted({*left, *right} - same)


def unlike_entries(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Returns a flag for each entry of two arrays of one shape and dtype: its bits differ."""
    words = [np.ravel(side).view(np.uint8).reshape(*side.shape, side.itemsize) for side in (one, other)]
    return np.asarray((words[0] != words[1]).any(axis=-1))


def to_host(flat: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns host copies, never views, so that later steps of the model do not change them.

    Typed keys become their uint32 data.
    """
    return {
        path: _host_copy(jax.random.key_data(value) if is_key(value) else value)
        for path, value in flat.items()
    }


def _host_copy(value: Any) -> np.ndarray:
    """Returns a copy of the whole array; shards that this process cannot address come from the other processes."""
    if getattr(value, "is_fully_addressable", True):
        return np.array(value)
    whole = np.array(multihost_utils.process_allgather(value, tiled=True))
    for shard in value.addressable_shards:
        whole[shard.index] = np.asarray(shard.data)
    return whole
