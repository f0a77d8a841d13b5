"""The interface of backends, which lower, compile and run programs."""

import abc
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from importlib import metadata
from typing import Any

import jax

from parity.builds.meshes import MeshSpec, Topology

KEPT_LINES = 4
LEVEL = "xla_backend_optimization_level"
UNOPTIMISED: dict[str, Any] = {LEVEL: 0, "xla_cpu_parallel_codegen_split_count": 1}
"""Compiler options for programs that run a few times: LLVM's optimisation takes most of a compile. XLA's own passes are
unchanged."""
if metadata.version("jaxlib").startswith(
    "0.10."
):  # whose fusion emitters make NaN of finite numbers at this level
    UNOPTIMISED["xla_cpu_use_fusion_emitters"] = False


class Backend(abc.ABC):
    """A backend, which lowers, compiles and may run programs.

    Attributes:
        name: name on the command line.
        executes: True if it can run programs.
        inspects: True if it exists to inspect compiled programs, so that proved ones are inspected too.
        tiled: True if arrays are stored in tiles, so that small ones take more than their bytes.
        topology: the slice that need not exist; None for devices that this process has.
    """

    name: str
    executes = False
    inspects = False
    tiled: bool = False
    topology: Topology | None = None

    @property
    def placement(self) -> jax.sharding.Sharding | None:
        """Sharding of the arguments of a program without a mesh; None for JAX's default device."""
        return None

    def fit(self, spec: MeshSpec, held: Collection[str] = ()) -> MeshSpec:
        """Returns the mesh that represents ``spec`` here, usually ``spec`` itself; axes in ``held`` keep their size.

        Raises:
            FixedAxesError: those axes alone need more devices than there are.
            ValueError: there is no such mesh.
        """
        self.mesh(spec)
        return spec

    @abc.abstractmethod
    def mesh(self, spec: MeshSpec) -> Any:
        """Returns the mesh of ``spec``, which may be abstract, or None for a single device.

        Raises:
            ValueError: the mesh needs more devices than there are.
        """

    def context(self, spec: MeshSpec) -> contextlib.AbstractContextManager:
        """Returns the ambient mesh of ``spec``, entered by ``with``."""
        mesh = self.mesh(spec)
        if mesh is None:
            return contextlib.nullcontext()
        abstract = isinstance(mesh, jax.sharding.AbstractMesh)
        return jax.sharding.use_abstract_mesh(mesh) if abstract else jax.set_mesh(mesh)

    def lower(self, traced: jax.stages.Traced) -> jax.stages.Lowered:
        """Returns the program lowered for this backend."""
        return traced.lower()

    @abc.abstractmethod
    def start(self, lowered: jax.stages.Lowered) -> Callable[[], Any]:
        """Starts to compile beside this thread; returns a function that returns the compiled program.

        That is a ``jax.stages.Compiled``, or an object with the same interface if the backend runs nothing.

        Raises:
            ValueError: it cannot compile.
        """


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Captures output to file descriptor 2 in this block; an exception gets its last lines as a note."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        screen = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except Exception as error:
            kept.seek(0)
            lines = kept.read().decode(errors="replace").splitlines()
            error.add_note("\n".join(["the compiler wrote:", *lines[-KEPT_LINES:]]))
            raise
        finally:
            os.dup2(screen, 2)
            os.close(screen)
