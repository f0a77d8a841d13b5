"""The backends that run programs: simulated devices of the CPU, and accelerators of this machine."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection
from typing import Any

import jax

from parity.builds.meshes import MeshSpec
from parity.compare.backends.quiet import quiet

__all__ = ["Accelerators", "Devices"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
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
    executes: bool = dataclasses.field(default=True, init=False)
    inspects: bool = dataclasses.field(default=False, init=False)
    tiled: bool = False
    topology: None = dataclasses.field(default=None, init=False)
    placement: None = dataclasses.field(default=None, init=False)

    def fit(self, spec: MeshSpec, held: Collection[str] = ()) -> MeshSpec:
        """See `Backend`."""
        self.mesh(spec)
        return spec

    def mesh(self, spec: MeshSpec) -> jax.sharding.Mesh | None:
        """See `Backend`."""
        return spec.on(self.devices()) if spec.axes else None

    def context(self, spec: MeshSpec) -> contextlib.AbstractContextManager:
        """See `Backend`."""
        mesh = self.mesh(spec)
        return contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh)

    def lower(self, traced: jax.stages.Traced) -> jax.stages.Lowered:
        """See `Backend`."""
        return traced.lower()

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
