"""The real TPU compiler ahead of time, for slices that need not exist. It compiles; nothing runs."""

import contextlib
import dataclasses
import functools
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator

import jax
from jax.experimental import topologies

from parity.environment import version
from parity.meshes import MeshSpec
from parity.topologies import Topology

__all__ = ["AheadOfTime", "missing_compiler"]

PACKAGE = "libtpu"
KEPT_LINES = 4


def missing_compiler() -> str:
    """Returns how to get the TPU compiler; empty where it is installed."""
    if importlib.util.find_spec(PACKAGE) is not None:
        return ""
    return f'pip install "jax[tpu]=={version("jax")}"'


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what the compiler writes to file descriptor 2 off the screen; an exception gets it as a note."""
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


@functools.cache
def _devices(topology: Topology) -> tuple:
    try:
        with _quiet():
            return tuple(topologies.get_topology_desc(platform="tpu", topology_name=str(topology)).devices)
    except (RuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].removeprefix("INVALID_ARGUMENT: ")
        raise ValueError(
            f"topology {topology}: the TPU compiler refuses it ({reason}); "
            "choose whole hosts, such as v5p:2x2x1, v5e:2x4 or v6e:2x2"
        ) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class AheadOfTime:
    """A backend that compiles for a TPU slice without having it, with the compiler in libtpu.

    Args:
        topology: the slice.
    """

    topology: Topology
    executes: bool = dataclasses.field(default=False, init=False)
    inspects: bool = dataclasses.field(default=True, init=False)

    @property
    def name(self) -> str:
        """Name in case records."""
        return f"aot:{self.topology}"

    @property
    def devices(self) -> tuple:
        """The slice's devices, in the compiler's order.

        Raises:
            ValueError: the compiler is not installed, or knows no such slice.
        """
        if remedy := missing_compiler():
            raise ValueError(
                f"backend {self.name}: {PACKAGE}, the TPU compiler, is not installed; get it with {remedy}"
            )
        return _devices(self.topology)

    @property
    def placement(self) -> jax.sharding.Sharding:
        """Where the arguments of a program without a mesh lie."""
        return jax.sharding.SingleDeviceSharding(self.devices[0])

    def fit(self, spec: MeshSpec) -> MeshSpec:
        """Returns the mesh as it fits the slice: its largest axis halved until there are devices enough.

        Raises:
            ValueError: no halving makes it fit.
        """
        return spec.fitted(len(self.devices), str(self.topology))

    def mesh(self, spec: MeshSpec) -> jax.sharding.Mesh | None:
        """See `parity.backends.Backend`."""
        if spec.size > len(self.devices):
            raise ValueError(
                f"mesh {spec}: needs {spec.size} devices, {self.topology} has {len(self.devices)}; "
                "choose a larger topology"
            )
        return spec.on(list(self.devices)) if spec.axes else None

    def context(self, spec: MeshSpec) -> contextlib.AbstractContextManager:
        """See `parity.backends.Backend`."""
        mesh = self.mesh(spec)
        return contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh)

    def lower(self, traced: jax.stages.Traced) -> jax.stages.Lowered:
        """See `parity.backends.Backend`."""
        with _quiet():
            return traced.lower()

    def compile(self, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
        """See `parity.backends.Backend`."""
        with _quiet():
            return lowered.compile()
