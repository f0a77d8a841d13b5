"""Arrays that an NNX module holds without a Variable, such as a frequency table; constants unless drawn from a key."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from flax import nnx
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from parity.builds.tree import is_key
from parity.ir.jax_internals import live, short_sharding_errors
from parity.ir.jaxprs import forwarded_arguments

KEYS = 16
"""Number of keys that must give the same array; two would give the same boolean every second time."""

Path = tuple[Any, ...]
Fresh = Callable[[jax.Array], Any]
T = TypeVar("T")


class Constants:
    """The constants of a module."""

    def __init__(self, arrays: Mapping[Path, jax.Array]):
        self._arrays = dict(arrays)

    def is_state(self, path: Path, node: Any) -> bool:
        """True unless the node is one of the constants; a filter of `nnx.state` and `nnx.split`."""
        return isinstance(node, nnx.Variable) or path not in self._arrays

    def states(self) -> tuple[Any, ...]:
        """Returns the states that `nnx.merge` takes in addition to the module's state."""
        return (nnx.from_flat_state(list(self._arrays.items())),) if self._arrays else ()

    def changed(self, module: Any) -> list[str]:
        """Returns the constants that are other objects after a program; their values may still be equal."""
        after = dict(nnx.to_flat_state(nnx.state(module))) if self._arrays else {}
        return ["/".join(map(str, path)) for path, array in self._arrays.items() if after[path] is not array]

    def altered(self, function: Callable[[Any], Any], *arguments: Any) -> list[str]:
        """Returns the constants that a program does not forward unchanged, in the sense of `nnx.jit`.

        Args:
            function: ``(states of the constants, *arguments) -> module`` after the program.
        """

        def arrays(states: tuple[Any, ...], *arguments: Any) -> list[Any]:
            after = dict(nnx.to_flat_state(nnx.state(function(states, *arguments))))
            return [after[path] for path in self._arrays]

        order = [path for path, _ in nnx.to_flat_state(self.states()[0])]
        found = forwarded_arguments(arrays, self.states(), *arguments)
        return [
            "/".join(map(str, path))
            for path, number in zip(self._arrays, found, strict=True)
            if number != order.index(path)
        ]


def traceable(create: Callable[[jax.Array], T]) -> Callable[[jax.Array], T]:
    """Returns a function that makes a module inside a trace as it is made outside.

    It marks tracers as data, because NNX does not take them for plain arrays. It does not shard Variables: their
    specs place them on a case's mesh.
    """

    @functools.wraps(create)
    def made(key: jax.Array) -> T:
        with nnx.use_eager_sharding(False), short_sharding_errors():
            module = create(key)
        if isinstance(module, nnx.Module):
            for node in [node for _, node in nnx.iter_graph(module) if isinstance(node, nnx.Pytree)]:
                _hold_as_data(node)
        return module

    return made


def _hold_as_data(node: nnx.Pytree) -> None:
    for name, value in list(vars(node).items()):
        leaves = jax.tree.leaves(value, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable | nnx.Pytree))
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            setattr(node, name, nnx.data(value))


def take_apart(create: Callable[[jax.Array], nnx.Module]) -> tuple[Any, Any, Constants, Fresh]:
    """Splits a module into graph, state and constants without making its arrays.

    Returns:
        Its graph, its abstract state, its constants (arrays without a Variable that no key changes), and a function
        that makes its state. The function is traced only once.
    """
    graphs: list[Any] = []

    def split(key: jax.Array, *filters: Any) -> tuple[Any, ...]:
        graphdef, *states = nnx.split(create(key), *filters)
        graphs.append(graphdef)
        return tuple(states)

    (held, bare), parts = traced_once(lambda key: split(key, nnx.Variable, ...))
    if not jax.tree.leaves(bare):
        return graphs[-1], held, Constants({}), lambda key: parts(key)[0]
    make = jax.jit(lambda key: parts(key)[1])
    first, *others = (dict(nnx.to_flat_state(make(jax.random.key(seed)))) for seed in range(KEYS))
    constants = Constants(
        {path: array for path, array in first.items() if all(_same(array, other[path]) for other in others)}
    )
    held, fresh = traced_once(lambda key: split(key, constants.is_state, ...)[0])
    return graphs[-1], held, constants, fresh


def traced_once(create: Callable[[jax.Array], Any]) -> tuple[Any, Fresh]:
    """Returns the abstract state that a function makes from a key, and the function, traced once for all callers."""
    jaxpr, example = jax.make_jaxpr(create, return_shape=True)(jax.random.key(0))
    operations = jaxpr_as_fun(jaxpr.replace(jaxpr=live(jaxpr.jaxpr)))

    def fresh(key: jax.Array) -> Any:
        return jax.tree.unflatten(jax.tree.structure(example), operations(key))

    return example, fresh


def _same(one: jax.Array, other: jax.Array) -> bool:
    return not is_key(one) and np.asarray(one).tobytes() == np.asarray(other).tobytes()
