"""One build's program on one mesh and backend: traced, lowered and compiled once, then run."""

import collections
import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from parity.builds.build import FORMER, Build, Group, Outputs, Program, enters
from parity.builds.meshes import MeshSpec
from parity.builds.tree import Role, to_host
from parity.compare.backends.backend import Backend
from parity.ir.hlo.anonymous import compiled_digest
from parity.ir.hlo.hlo import HloModule
from parity.ir.hlo.optimised import optimised_module
from parity.ir.jax_internals import key_implementation, traced_closures
from parity.ir.stablehlo.functions import Functions
from parity.ir.stablehlo.program import StableProgram as ReadProgram
from parity.ir.stablehlo.reader import read_program

__all__ = ["PHASES", "Clock", "Side", "SideError"]

T = TypeVar("T")
Flat = Mapping[str, np.ndarray]

PHASES: tuple[str, ...] = ("build", "trace", "lower", "prove", "compile", "execute", "audit", "judge")
"""``audit`` follows random keys; ``judge`` is what channels do by themselves, the weight map included."""


class SideError(RuntimeError):
    """A side crashed: says which side, in which phase, and the first line of why."""

    def __init__(self, build: str, phase: str, cause: Exception):
        super().__init__(f"{build}: {phase} failed: {type(cause).__name__}: {cause}")
        self.build, self.phase, self.cause = build, phase, cause


class Clock:
    """Seconds spent in each phase since the last `take`.

    Args:
        tell: told of each phase that begins, in words.
    """

    def __init__(self, tell: Callable[[str], None] = lambda phase: None):
        self._tell = tell
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._inner = 0.0

    @contextlib.contextmanager
    def phase(self, build: str, name: str) -> Iterator[None]:
        """Adds the time of the block to ``name`` and says where an exception came from.

        Raises:
            SideError: the block raised.
        """
        self._tell(f"{build}, {name}")
        with self.book(name):
            try:
                yield
            except Exception as cause:
                raise SideError(build, name, cause) from cause

    @contextlib.contextmanager
    def book(self, name: str) -> Iterator[None]:
        """Adds the time of the block to ``name``, but for what blocks inside it book."""
        start, outer, self._inner = time.perf_counter(), self._inner, 0.0
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self._seconds[name] += spent - self._inner
            self._inner = outer + spent

    def take(self) -> dict[str, float]:
        """Returns the seconds and starts again from zero."""
        seconds, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        return seconds


@dataclasses.dataclass(frozen=True)
class Side:
    """A program of a build on a mesh and a backend.

    Args:
        build, program, mesh, backend: what runs where.
        clock: where time is booked.
    """

    build: Build
    program: Program
    mesh: MeshSpec
    backend: Backend
    clock: Clock

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """What the side is, as a key: its build itself, and what of it runs where."""
        return self.build, self.program.name, self.mesh, self.backend.name

    @functools.cached_property
    def specs(self) -> dict[str, jax.sharding.PartitionSpec]:
        """Spec of each state leaf, as this build resolves it, without axes of size one; empty without a mesh."""
        mesh = self.backend.mesh(self.mesh)
        return {} if mesh is None else self._essential(self.build.specs(mesh))

    def _essential(self, specs: Mapping[str, Any]) -> dict[str, Any]:
        return {path: self.mesh.essential(spec) for path, spec in specs.items()}

    def _shardings(self, specs: Mapping[str, jax.sharding.PartitionSpec]) -> dict[str, Any]:
        mesh = self.backend.mesh(self.mesh)
        return {path: jax.sharding.NamedSharding(mesh, spec) for path, spec in specs.items()} if mesh else {}

    @functools.cached_property
    def _state_shardings(self) -> dict[str, Any]:
        return self._shardings(self.specs)

    @functools.cached_property
    def state_paths(self) -> tuple[str, ...]:
        """The state's leaves in the order of the program's arguments: parameters first, as training loops pass them.

        By path alone the twins would differ, because each calls the optimizer's state by another name, and
        compilers pack buffers in the order of arguments.
        """
        roles = list(Role)
        return tuple(
            sorted(self.build.abstract, key=lambda path: (roles.index(self.build.leaves[path].role), path))
        )

    def _in_order(self, leaves: Mapping[str, T]) -> collections.OrderedDict[str, T]:
        ranks = {path: rank for rank, path in enumerate(self.state_paths)}
        ordered = sorted(leaves, key=lambda path: (ranks.get(path, len(ranks)), path))
        return collections.OrderedDict((path, leaves[path]) for path in ordered)

    @functools.cached_property
    def function(self) -> Callable[[dict[str, Any], dict[str, Any]], Outputs]:
        """The program's function, but what comes by leaf is returned in the order of the arguments."""

        @functools.wraps(self.program.function)
        def function(state: dict[str, Any], inputs: dict[str, Any]) -> Outputs:
            outputs = self.program.function(dict(state), inputs)
            return {
                group: self._in_order(leaves) if Group(group).by_leaf else leaves
                for group, leaves in outputs.items()
            }

        enters(function)
        return function

    def _abstract(self, leaves: Mapping[str, Any], shardings: Mapping[str, Any]) -> dict[str, Any]:
        default = None if self.mesh.axes else self.backend.placement
        return {
            path: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=shardings.get(path, default))
            for path, leaf in leaves.items()
        }

    @functools.cached_property
    def arguments(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Abstract state and inputs, as they lie."""
        return (
            self._in_order(self._abstract(self.build.abstract, self._state_shardings)),
            self._abstract(self.build.abstract_inputs, self._input_shardings),
        )

    @functools.cached_property
    def _input_shardings(self) -> dict[str, Any]:
        return self._shardings(self.input_specs)

    @functools.cached_property
    def input_specs(self) -> dict[str, jax.sharding.PartitionSpec]:
        """Spec of each input; empty without a mesh."""
        mesh = self.backend.mesh(self.mesh)
        if mesh is None:
            return {}
        return self._essential(self.build.input_specs(self.build.abstract_inputs, mesh))

    @functools.cached_property
    def returned(self) -> dict[str, dict[str, jax.ShapeDtypeStruct]]:
        """What the program returns by itself; on an explicit mesh the types say where it lies."""
        with self.clock.phase(self.build.name, "trace"), self.backend.context(self.mesh):
            return jax.jit(self.function).trace(*self.arguments).out_info

    @functools.cached_property
    def traced(self) -> jax.stages.Traced:
        """The traced program; its state outputs are made to lie where the state inputs do."""
        returned = self.returned
        with self.clock.phase(self.build.name, "trace"), self.backend.context(self.mesh):
            out_shardings = {
                group: self._in_order({path: self._state_shardings.get(path) for path in leaves})
                if Group(group).by_leaf
                else dict.fromkeys(leaves)
                for group, leaves in returned.items()
            }
            donated = (0,) if self.program.donate else ()
            jitted = jax.jit(self.function, donate_argnums=donated, out_shardings=out_shardings)
            return jitted.trace(*self.arguments)

    @functools.cached_property
    def lowered(self) -> jax.stages.Lowered:
        """The lowered program."""
        traced = self.traced
        with self.clock.phase(self.build.name, "lower"), self.backend.context(self.mesh):
            return self.backend.lower(traced)

    @functools.cached_property
    def functions(self) -> Functions:
        """The functions of the lowered program, each read once."""
        lowered = self.lowered
        with self.clock.phase(self.build.name, "prove"):
            return Functions(lowered)

    @functools.cached_property
    def operations(self) -> ReadProgram:
        """The lowered program as the prover reads it, calls inlined."""
        functions = self.functions
        with self.clock.phase(self.build.name, "prove"):
            return read_program(functions)

    def begin(self) -> None:
        """Starts to compile; where another process does that, this one can go on."""
        _ = self._compiling

    @functools.cached_property
    def _compiling(self) -> Callable[[], Any]:
        lowered = self.lowered
        with self.clock.phase(self.build.name, "compile"), self.backend.context(self.mesh):
            return self.backend.start(lowered)

    @functools.cached_property
    def compiled(self) -> Any:
        """The compiled program, a ``jax.stages.Compiled`` or what reads like one."""
        wait = self._compiling
        with self.clock.phase(self.build.name, "compile"), self.backend.context(self.mesh):
            return wait()

    @functools.cached_property
    def optimised(self) -> HloModule:
        """The compiled program's HLO, parsed once for all that read it.

        Raises:
            SideError: the text uses a construct the reader does not know.
        """
        compiled = self.compiled
        try:
            return optimised_module(compiled)
        except ValueError as cause:
            raise SideError(self.build.name, "reading the optimised program", cause) from cause

    @functools.cached_property
    def anonymous(self) -> str | None:
        """Digest of what the compiled program does, see `parity.ir.hlo.anonymous`; None if not told."""
        return compiled_digest(self.compiled)

    def _place(
        self, host: Mapping[str, np.ndarray], shardings: Mapping[str, Any], like: Any
    ) -> dict[str, Any]:
        placed = {}
        array: Any
        for path, array in host.items():
            dtype, sharding = like[path].dtype, shardings.get(path)
            is_key = jnp.issubdtype(dtype, jax.dtypes.prng_key)
            if sharding is not None and not sharding.is_fully_addressable:
                array = _spread(array, sharding)
                placed[path] = (
                    jax.random.wrap_key_data(array, impl=key_implementation(dtype)) if is_key else array
                )
                continue
            if is_key:
                array = jax.random.wrap_key_data(jnp.array(array), impl=key_implementation(dtype))
            placed[path] = jax.device_put(array, sharding, may_alias=False)
        return placed

    def placed(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Returns the arrays of a state where the program takes them, keys as typed keys."""
        return self._in_order(self._place(state, self._state_shardings, self.build.abstract))

    def placed_inputs(self, batch: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Returns the arrays of a batch where the program takes them."""
        return self._place(batch, self._input_shardings, batch)

    def run(
        self,
        state: Mapping[str, np.ndarray],
        seed: int,
        alter: Callable[[Flat], Flat] = lambda batch: batch,
        steps: int | None = None,
    ) -> dict[str, dict[str, np.ndarray]]:
        """Runs the program from ``state`` and returns host copies of what it returned.

        Args:
            state: host arrays of all state leaves; keys as uint32 data.
            seed: of the first step's batch; later steps take the next ones.
            alter: what is done to each batch first, such as a nudge.
            steps: how many; the program's own by default.

        Returns:
            ``{group: {path: array}}``; with several steps the paths begin with ``step1/`` and so on,
            and the state is returned after the first and the last.
        """
        compiled, steps = self.compiled, steps or self.program.steps
        results: dict[str, dict[str, np.ndarray]] = {}
        with self.clock.phase(self.build.name, "execute"), self.backend.context(self.mesh):
            current = self.placed(state)
            for step in range(1, steps + 1):
                batch = alter(self.build.inputs(seed + step - 1))
                outputs = compiled(current, self.placed_inputs(batch))
                current = outputs.get(Group.STATE, current)
                for group, leaves in outputs.items():
                    if group != Group.STATE or step in (1, steps):
                        prefix = f"step{step}/" if steps > 1 else ""
                        host = to_host(leaves)
                        results.setdefault(group, {}).update({prefix + path: host[path] for path in host})
        return results


def _spread(host: np.ndarray, sharding: jax.sharding.Sharding) -> jax.Array:
    """Returns an array over several processes; each puts its own part, and none asks the others."""
    return jax.make_array_from_callback(host.shape, sharding, lambda index: np.array(host[index]))


def built(side: str, make: Callable[..., Build], *given: Any) -> Build:
    """Returns the build of a side of a case.

    Args:
        side: ``reference`` or ``candidate``.
        make: makes it.
        *given: what it is called with.

    Raises:
        SideError: it raised.
    """
    former = traced_closures()
    try:
        build = make(*given)
    except Exception as cause:
        raise SideError(f"the {side}", "build", cause) from cause
    FORMER.setdefault(build, former)
    return build
