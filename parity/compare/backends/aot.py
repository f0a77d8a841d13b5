"""The real TPU compiler ahead of time, for slices that need not exist. It compiles; nothing runs."""

import contextlib
import dataclasses
import functools
import importlib.util
import os
import time
from collections.abc import Callable, Collection
from typing import Any

import jax
from jax.experimental import topologies

from parity.builds.meshes import MeshSpec, Topology
from parity.compare.backends.backend import Backend, quiet
from parity.compare.backends.compiler import Compilation, Compiler, Request, shared
from parity.compare.backends.environment import version
from parity.ir.hlo.anonymous import anonymous_digest
from parity.ir.jax_internals import (
    compile_module,
    compile_request,
    compiled_shardings,
    hoisted_constants,
    kept_arguments,
)

PACKAGE = "libtpu"
FLAGS = "LIBTPU_INIT_ARGS"


def missing_compiler() -> str:
    """Returns a command that installs the TPU compiler; empty if it is installed."""
    if importlib.util.find_spec(PACKAGE) is not None:
        return ""
    return f'pip install "jax[tpu]=={version("jax")}"'


@functools.cache
def _devices(topology: Topology) -> tuple:
    try:
        # The compiler ends this process if it does not accept its flags; then its message must be seen.
        with contextlib.nullcontext() if os.environ.get(FLAGS) else quiet():
            return tuple(topologies.get_topology_desc(platform="tpu", topology_name=str(topology)).devices)
    except (RuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].removeprefix("INVALID_ARGUMENT: ")
        raise ValueError(
            f"topology {topology}: the TPU compiler refuses it ({reason}); "
            "choose whole hosts, such as v5p:2x2x1, v5e:2x4 or v6e:2x2"
        ) from error


class CompiledAhead:
    """A program compiled in another process, read like a ``jax.stages.Compiled``; it cannot run.

    Args:
        devices: in the order of the program.
    """

    def __init__(self, compilation: Compilation, lowered: jax.stages.Lowered, devices: tuple):
        self.compilation, self._lowered, self._devices = compilation, lowered, devices
        self.anonymous = compilation.anonymous
        self.as_text = lambda: compilation.text
        self.memory_analysis = lambda: compilation.memory
        self.cost_analysis = lambda: compilation.cost

    @functools.cached_property
    def input_shardings(self) -> Any:
        """Shardings of the arguments; None for those that the program does not use."""
        leaves, structure = jax.tree.flatten(self._lowered.in_avals)
        kept = kept_arguments(self._lowered)
        hoisted = hoisted_constants(self._lowered)
        arguments = [*hoisted, *[leaves[i] for i in kept]]
        taken = compiled_shardings(self.compilation.inputs, arguments, self._devices)
        placed = dict(zip(kept, taken[len(hoisted) :], strict=True))
        return jax.tree.unflatten(structure, [placed.get(index) for index in range(len(leaves))])

    @functools.cached_property
    def output_shardings(self) -> Any:
        """Shardings of the results."""
        leaves, structure = jax.tree.flatten(self._lowered.out_info)
        placed = compiled_shardings(self.compilation.outputs, leaves, self._devices)
        return jax.tree.unflatten(structure, placed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AheadOfTime(Backend):
    """A backend that compiles for a TPU slice without having it, with the compiler in libtpu.

    Args:
        compiler: has the worker processes; by default all backends share one.
    """

    topology: Topology
    compiler: Compiler | None = dataclasses.field(default=None, compare=False)
    name: str = dataclasses.field(init=False)
    inspects = tiled = True

    def __post_init__(self):
        object.__setattr__(self, "name", f"aot:{self.topology}")

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
        """See `Backend`."""
        return jax.sharding.SingleDeviceSharding(self.devices[0])

    def fit(self, spec: MeshSpec, held: Collection[str] = ()) -> MeshSpec:
        """Returns the mesh fitted to the slice."""
        return spec.fitted(len(self.devices), held)

    def mesh(self, spec: MeshSpec) -> jax.sharding.Mesh | None:
        """See `Backend`."""
        spec.check(len(self.devices), str(self.topology))
        return spec.on(list(self.devices)) if spec.axes else None

    def lower(self, traced: jax.stages.Traced) -> jax.stages.Lowered:
        """See `Backend`."""
        with quiet():
            return traced.lower()

    def start(self, lowered: jax.stages.Lowered) -> Callable[[], CompiledAhead]:
        """See `Backend`. The compiler runs in a worker process."""
        with quiet():
            module, options, ids = compile_request(lowered)
        request = Request(backend=self.name, module=module, options=options, devices=ids)
        wait = (self.compiler or shared()).start("parity.compare.backends.aot:compile_request_here", request)
        by_id = {device.id: device for device in self.devices}
        return lambda: CompiledAhead(wait(), lowered, tuple(by_id[id] for id in ids))


def compile_request_here(request: Request, notify: Callable[[str], None]) -> Compilation:
    """Compiles a request in this process, which should be a worker."""
    notify("compile")
    by_id = {device.id: device for device in _devices(Topology.parse(request.backend.partition(":")[2]))}
    start = time.perf_counter()
    made = compile_module(request.module, request.options, [by_id[id] for id in request.devices])
    seconds = time.perf_counter() - start
    return Compilation(anonymous=anonymous_digest(made.pop("program")), **made, seconds=seconds)
