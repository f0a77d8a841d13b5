"""One build's program on one mesh and backend, observed as far as a channel needs: traced, lowered, compiled, run."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from parity.builds.attributes import Effects, collect_effects
from parity.builds.build import Build, Group, Outputs, Program, building
from parity.builds.meshes import MeshSpec
from parity.builds.tree import Role, to_host
from parity.compare.backends.backend import Backend
from parity.compare.clock import Clock, SideError
from parity.compare.memo import Memo, Once
from parity.compare.unpaired import typed
from parity.ir.checks import Unchecked
from parity.ir.hlo.hlo import HloModule
from parity.ir.hlo.optimised import optimised_module
from parity.ir.jax_internals import main_position
from parity.ir.precision import Hook, retraced, round_all, round_other_way, widen
from parity.ir.stablehlo.functions import Functions
from parity.ir.stablehlo.program import StableProgram
from parity.ir.stablehlo.reader import read_program

STATE, INPUT = "state", "input"
"""The kinds of arguments."""

T = TypeVar("T")
Flat = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Side:
    """A program of a build on a mesh and a backend.

    An observation (`traced`, `lowered`, `compiled`) runs code and books a phase. It is made once, when it is first
    read; a failure is kept like a result. `read` keeps pure functions of observations in the same way.
    """

    build: Build
    program: Program
    mesh: MeshSpec
    backend: Backend
    clock: Clock
    memo: Memo = dataclasses.field(default_factory=Memo, init=False, repr=False)

    def read(self, reader: Callable[["Side"], T]) -> T:
        """Returns a reading of this side, such as the positions of its arguments; made once."""
        return self.memo(reader, self, by=())

    @Once
    def specs(self) -> dict[str, jax.sharding.PartitionSpec]:
        """Spec of each state leaf, as this build resolves it, without axes of size one; empty without a mesh."""
        return self._essential(self.build.specs)

    @Once
    def input_specs(self) -> dict[str, jax.sharding.PartitionSpec]:
        """Spec of each input; empty without a mesh."""
        return self._essential(functools.partial(self.build.input_specs, self.build.abstract_inputs))

    @Once
    def device_mesh(self) -> Any:
        """The mesh over devices; None without a mesh."""
        return self.backend.mesh(self.mesh)

    def _essential(self, specs: Callable[[Any], Mapping[str, Any]]) -> dict[str, Any]:
        found = specs(self.device_mesh) if self.device_mesh else {}
        return {path: self.mesh.essential(spec) for path, spec in found.items()}

    @Once
    def _shardings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The sharding of each state leaf, and of each input."""
        make = functools.partial(jax.sharding.NamedSharding, self.device_mesh)
        state, inputs = (
            {path: make(spec) for path, spec in specs.items()} for specs in (self.specs, self.input_specs)
        )
        return state, inputs

    @Once
    def state_paths(self) -> tuple[str, ...]:
        """The state's leaves in the order of the program's arguments: parameters first, as training loops pass them.

        If sorted by path only, the twins would differ: they name the optimizer's state differently, and compilers pack
        buffers in the order of arguments.
        """
        roles = list(Role)
        return tuple(
            sorted(self.build.abstract, key=lambda path: (roles.index(self.build.leaves[path].role), path))
        )

    def _in_order(self, leaves: Mapping[str, T]) -> collections.OrderedDict[str, T]:
        ranks = {path: rank for rank, path in enumerate(self.state_paths)}
        ordered = sorted(leaves, key=lambda path: (ranks.get(path, len(ranks)), path))
        return collections.OrderedDict((path, leaves[path]) for path in ordered)

    @Once
    def function(self) -> Callable[[dict[str, Any], dict[str, Any]], Outputs]:
        """The program's function, with the results of leaves in the order of the arguments."""

        def function(state: dict[str, Any], inputs: dict[str, Any]) -> Outputs:
            outputs = self.program.function(dict(state), inputs)
            return {
                group: self._in_order(leaves) if Group(group).by_leaf else leaves
                for group, leaves in outputs.items()
            }

        function.__name__ = getattr(self.program.function, "__name__", function.__name__)
        return function

    def _abstract(self, leaves: Mapping[str, Any], shardings: Mapping[str, Any]) -> dict[str, Any]:
        default = None if self.mesh.axes else self.backend.placement
        return {
            path: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=shardings.get(path, default))
            for path, leaf in leaves.items()
        }

    @Once
    def arguments(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Abstract state and inputs, with their shardings."""
        return (
            self._in_order(self._abstract(self.build.abstract, self._shardings[0])),
            self._abstract(self.build.abstract_inputs, self._shardings[1]),
        )

    @Once
    def _tracing(self) -> tuple[jax.stages.Traced, Mapping[str, Mapping[str, Any]], Effects]:
        name = self.build.name
        with self.clock.phase(name, "trace"), self.backend.context(self.mesh), collect_effects() as effects:
            returned = jax.jit(self.function).trace(*self.arguments).out_info
            out_shardings = {
                group: self._in_order({path: self._shardings[0].get(path) for path in leaves})
                if Group(group).by_leaf
                else dict.fromkeys(leaves)
                for group, leaves in returned.items()
            }
            donated = (0,) if self.program.donate else ()
            jitted = jax.jit(self.function, donate_argnums=donated, out_shardings=out_shardings)
            traced = jitted.trace(*self.arguments)
        return traced, returned, effects[-1] if effects else Effects()

    @property
    def traced(self) -> jax.stages.Traced:
        """The traced program; its state outputs are placed like the state inputs."""
        return self._tracing[0]

    @property
    def returned(self) -> Mapping[str, Mapping[str, Any]]:
        """The types that the program itself returns; on an explicit mesh they hold placements."""
        return self._tracing[1]

    @property
    def effects(self) -> Effects:
        """Side effects of the traced program."""
        return self._tracing[2]

    @Once
    def results(self) -> tuple[tuple[str, str], ...]:
        """Group and path of each result, in the order in which the program returns them."""
        info = self.traced.out_info
        return tuple((str(group), path) for group in sorted(info) for path in info[group])

    @Once
    def read_arguments(self) -> Mapping[int, tuple[str, str]]:
        """Kind, `STATE` or `INPUT`, and path of each argument in ``@main``, by position; dropped ones are absent."""
        given = [(STATE, path) for path in self.state_paths]
        given += [(INPUT, path) for path in sorted(self.build.abstract_inputs)]
        return {position: given[index] for index, position in main_position(self.lowered).items()}

    @Once
    def lowered(self) -> jax.stages.Lowered:
        """The lowered program."""
        traced = self.traced
        with self.clock.phase(self.build.name, "lower"), self.backend.context(self.mesh):
            return self.backend.lower(traced)

    @Once
    def functions(self) -> Functions:
        """The functions of the lowered program, each read once."""
        lowered = self.lowered
        with self.clock.phase(self.build.name, "prove"):
            return Functions(lowered)

    @Once
    def operations(self) -> StableProgram:
        """The lowered program as the prover reads it, calls inlined."""
        functions = self.functions
        with self.clock.phase(self.build.name, "prove"):
            return read_program(functions)

    def begin(self) -> None:
        """Starts to compile, without waiting."""
        _ = self._compiling

    @Once
    def _compiling(self) -> Callable[[], Any]:
        lowered = self.lowered
        with self.clock.phase(self.build.name, "compile"), self.backend.context(self.mesh):
            return self.backend.start(lowered)

    @Once
    def compiled(self) -> Any:
        """The compiled program, a ``jax.stages.Compiled`` or an object with the same interface."""
        wait = self._compiling
        with self.clock.phase(self.build.name, "compile"), self.backend.context(self.mesh):
            return wait()

    @Once
    def optimised(self) -> HloModule:
        """The compiled program's HLO, parsed once for all readers.

        Raises:
            SideError: the text uses a construct the reader does not know.
        """
        compiled = self.compiled
        try:
            return optimised_module(compiled)
        except ValueError as cause:
            raise SideError(self.build.name, "reading the optimised program", cause) from cause

    def placed(self, state: Flat) -> dict[str, Any]:
        """Returns the arrays of a state, placed as the program expects, keys as typed keys."""
        return self._in_order(_placed(state, self._shardings[0], self.build.abstract))

    def placed_inputs(self, batch: Flat) -> dict[str, Any]:
        """Returns the arrays of a batch, placed as the program expects."""
        return _placed(batch, self._shardings[1], batch)

    def run(
        self,
        state: Flat,
        seed: int,
        alter: Callable[[Flat], Flat] = lambda batch: batch,
        steps: int | None = None,
    ) -> dict[str, dict[str, np.ndarray]]:
        """Runs the program from ``state`` and returns host copies of its results.

        Args:
            state: host arrays of all state leaves; keys as uint32 data.
            seed: seed of the first step's batch; later steps take the next ones.
            alter: changes each batch first, for example by a nudge.
            steps: number of steps; the program's own by default.

        Returns:
            ``{group: {path: array}}``; with several steps the paths begin with ``step1/`` and so on, and the state is
            returned after the first and the last.
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


def _retraced(side: Side, hook: Hook) -> Side:
    function = retraced(side.program.function, hook)
    return dataclasses.replace(side, program=dataclasses.replace(side.program, function=function))


def rounded_side(side: Side) -> Side:
    """Returns a side whose casts to narrow floats round the other way."""
    return _retraced(side, round_other_way)


def rerounded_side(side: Side) -> Side:
    """Returns a side whose arithmetic in float32 rounds to either neighbour."""
    return _retraced(side, round_all)


def unchecked_side(side: Side) -> Side:
    """Returns a side whose checks for numbers that are not finite find none."""
    return _retraced(side, Unchecked())


def widened_side(side: Side) -> Side:
    """Returns a side that computes in float32 instead of narrow floats; its state keeps its types."""
    function = retraced(side.program.function, widen)

    def wide(state: dict[str, Any], inputs: dict[str, Any]) -> Outputs:
        outputs = function(state, inputs)
        kept = {path: leaf.astype(state[path].dtype) for path, leaf in outputs.get(Group.STATE, {}).items()}
        return {**outputs, **({Group.STATE: kept} if kept else {})}

    return dataclasses.replace(side, program=dataclasses.replace(side.program, function=wide))


def _placed(hosts: Flat, shardings: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Returns arrays on their devices; over several processes, each places its own part without communication."""
    if not all(each.is_fully_addressable for each in shardings.values()):
        make = jax.make_array_from_callback
        parts = {path: lambda index, host=host: np.array(host[index]) for path, host in hosts.items()}
        return {p: typed(like[p], make(host.shape, shardings[p], parts[p])) for p, host in hosts.items()}
    given = [typed(like[path], host) for path, host in hosts.items()]
    placed = jax.device_put(given, [shardings.get(path) for path in hosts], may_alias=False)  # faster at once
    return dict(zip(hosts, placed, strict=True))


def built(side: str, make: Callable[..., Build], *given: Any) -> Build:
    """Returns the build of a side of a case.

    Raises:
        SideError: the function raised.
    """
    try:
        with building():
            return make(*given)
    except Exception as cause:
        raise SideError(f"the {side}", "build", cause) from cause
