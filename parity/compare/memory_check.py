"""Whether a state fits the machine: said before it is made, because the kernel says nothing at all."""

import jax
import jax.numpy as jnp

from parity.builds.build import Build
from parity.compare.backends.workers import GIB, machine_memory

__all__ = ["InsufficientMemoryError", "check_fits_in_memory", "state_bytes"]

COPIES = 4
"""How often a run holds a state at least: of both sides, on the host and where it runs."""


class InsufficientMemoryError(ValueError):
    """A state is larger than what there is to hold it."""


def state_bytes(build: Build) -> int:
    """Returns the bytes of a build's state."""

    def size(leaf: jax.ShapeDtypeStruct) -> int:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.eval_shape(jax.random.key_data, leaf)
        return int(leaf.size) * leaf.dtype.itemsize

    return sum(size(leaf) for leaf in build.abstract.values())


def check_fits_in_memory(build: Build) -> None:
    """Raises where a build's state cannot be made and compared on this machine.

    Args:
        build: which nothing was made of yet.

    Raises:
        InsufficientMemoryError: the host, or the device that makes states, has less memory.
    """
    held, host = state_bytes(build), machine_memory()
    advice = "prove it alone with parity prove, which makes no state, or compare a smaller configuration"
    if COPIES * held > host:
        raise InsufficientMemoryError(
            f"a state of {_gib(held)}, of which a run holds {COPIES}, got {_gib(host)} of memory, expected "
            f"{_gib(COPIES * held)}; {advice}"
        )
    device = jax.devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit") if device.platform != "cpu" else None
    if limit and held > limit:
        raise InsufficientMemoryError(
            f"a state of {_gib(held)}, got {_gib(limit)} on {device}, expected room for it; {advice}"
        )


def _gib(count: int) -> str:
    return f"{count / GIB:.3g} GiB"
