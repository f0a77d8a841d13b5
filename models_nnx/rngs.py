"""Keys for NNX modules that equal those of Flax Linen from the same root key.

Linen folds the path of the module and the number of the draw into a stream's root key. `PathRngs` does the same, so
that both twins have equal initial values and drop the same entries.
"""

import collections
import hashlib
from collections.abc import Mapping

import flax
import jax
import jax.numpy as jnp

__all__ = ["PathRngs", "fold_path"]


def fold_path(key: jax.Array, path: tuple[str, ...], count: int) -> jax.Array:
    """Returns the key of draw number ``count`` (from 1) in the module at ``path``.

    Source: flax.linen's rule (SHA-1 of the path names and the counter, first four bytes, folded in).
    """
    separator = b"\x00" if flax.config.flax_fix_rng_separator else b""
    digest = hashlib.sha1()
    for name in path:
        digest.update(separator + name.encode())
    digest.update(separator + count.to_bytes((count.bit_length() + 7) // 8, "big"))
    return jax.random.fold_in(key, jnp.uint32(int.from_bytes(digest.digest()[:4], "big")))


class PathRngs:
    """Named streams of keys at one path of the module tree.

    Pass it to a module's ``__init__`` to draw parameters and store ``path``, and to its ``__call__`` to
    draw dropout keys. ``at`` descends; ``split`` and ``using`` cross a scan or vmap.

    Args:
        streams: root key of each stream, such as ``{"params": key}``.
        path: names of the modules from the root to here.
        root: number of leading names that the keys do not depend on.
    """

    def __init__(self, streams: Mapping[str, jax.Array], path: tuple[str, ...] = (), root: int = 0):
        self.streams = dict(streams)
        self.path, self.root = path, root
        self._counts: collections.Counter[tuple[str, tuple[str, ...]]] = collections.Counter()

    def at(self, name: str) -> "PathRngs":
        """Returns the same streams at the submodule ``name``."""
        child = PathRngs(self.streams, (*self.path, name), self.root)
        child._counts = self._counts
        return child

    def draw(self, stream: str, path: tuple[str, ...] | None = None) -> jax.Array:
        """Returns the next key of ``stream`` at ``path`` (default: here).

        Raises:
            KeyError: there is no such stream.
        """
        path = self.path if path is None else path
        if stream not in self.streams:
            raise KeyError(f"no stream {stream!r} at {'/'.join(path)}; there are {sorted(self.streams)}")
        self._counts[stream, path] += 1
        return fold_path(self.streams[stream], path[self.root :], self._counts[stream, path])

    def split(self, number: int) -> dict[str, jax.Array]:
        """Returns every stream's root key split into ``[number]`` keys, one per scanned layer."""
        return {name: jax.random.split(key, number) for name, key in self.streams.items()}

    def using(self, streams: Mapping[str, jax.Array]) -> "PathRngs":
        """Returns streams at this path with other root keys and new counters, for a scan body."""
        return PathRngs(streams, self.path, self.root)

    @classmethod
    def alone(cls, streams: Mapping[str, jax.Array], path: tuple[str, ...]) -> "PathRngs":
        """Returns streams whose keys treat ``path`` as the root, like those of a separately applied Linen module."""
        return cls(streams, path, len(path))
