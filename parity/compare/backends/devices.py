"""The backends that run programs: simulated devices of the CPU, and accelerators of this machine."""

import dataclasses
import os
from collections.abc import Callable, Collection
from typing import Any

import jax

from parity.builds.meshes import MeshSpec
from parity.compare.backends.backend import Backend, quiet

__all__ = ["Accelerators", "Devices"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices(Backend):
    """A backend that compiles for devices of this process and runs on them.

    Args:
        name: name on the command line.
        devices: finds the devices.
        tiled: True if arrays are stored in tiles there.
        options: compiler options, as flags of XLA without the dashes; a flag that is also in ``XLA_FLAGS`` keeps the
            value it has there.
    """

    name: str
    devices: Callable[[], list]
    options: tuple[tuple[str, Any], ...] = ()
    tiled: bool = False
    executes = True

    def mesh(self, spec: MeshSpec) -> jax.sharding.Mesh | None:
        """See `Backend`."""
        return spec.on(self.devices()) if spec.axes else None

    def start(self, lowered: jax.stages.Lowered) -> Callable[[], jax.stages.Compiled]:
        """See `Backend`. A program that will run is compiled in this process, when the result is requested."""
        chosen = os.environ.get("XLA_FLAGS", "")
        options = {flag: value for flag, value in self.options if flag not in chosen}

        def compile_here() -> jax.stages.Compiled:
            with quiet():
                return lowered.compile(compiler_options=options)

        return compile_here


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accelerators(Devices):
    """A backend of the accelerators of this machine; meshes are fitted to their number.

    Args:
        remedy: how to get them, as text.
    """

    remedy: str = ""

    @property
    def found(self) -> list:
        """The devices.

        Raises:
            ValueError: there is none.
        """
        try:
            with quiet():
                return self.devices()
        except RuntimeError as error:
            reason = str(error).partition(" (set JAX_PLATFORMS")[0]
            raise ValueError(
                f"backend {self.name}: JAX finds no such device ({reason}); {self.remedy}"
            ) from error

    def fit(self, spec: MeshSpec, held: Collection[str] = ()) -> MeshSpec:
        """Returns the mesh fitted to the devices."""
        return spec.fitted(len(self.found), held)

    def mesh(self, spec: MeshSpec) -> jax.sharding.Mesh | None:
        """See `Backend`."""
        return spec.on(self.found) if spec.axes else None
