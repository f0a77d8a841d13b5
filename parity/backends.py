"""Where programs are compiled and run."""

import contextlib
import dataclasses
import difflib
from collections.abc import Callable

import jax

from parity.meshes import MeshSpec

__all__ = ["BACKENDS", "Backend", "find"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backend:
    """A place to compile and run.

    Args:
        name: as the command line spells it.
        devices: finds the devices.
        executes: whether compiled programs also run.
    """

    name: str
    devices: Callable[[], list]
    executes: bool = True

    def mesh(self, spec: MeshSpec) -> jax.sharding.Mesh | None:
        """Returns the mesh of ``spec``, or None for a single device.

        Raises:
            ValueError: the mesh needs more devices than there are.
        """
        return spec.on(self.devices()) if spec.axes else None

    def context(self, spec: MeshSpec) -> contextlib.AbstractContextManager:
        """Returns the ambient mesh of ``spec``, entered by ``with``."""
        mesh = self.mesh(spec)
        return contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh)


BACKENDS = {"cpu": Backend(name="cpu", devices=lambda: jax.devices("cpu"))}


def find(name: str) -> Backend:
    """Returns the backend called ``name``.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in BACKENDS:
        near = difflib.get_close_matches(name, BACKENDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"backend {name!r}: expected one of {', '.join(BACKENDS)}{hint}")
    return BACKENDS[name]
