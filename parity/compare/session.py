"""What the cases of a session share: sides, states, and whatever else is made once."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import jax
import numpy as np

from parity.builds.build import Build
from parity.builds.meshes import MeshSpec
from parity.builds.tree import to_host
from parity.cases.case import Case
from parity.compare.backends.backend import Backend
from parity.compare.backends.registry import find
from parity.compare.memory_check import check_fits_in_memory
from parity.compare.runs import SEED
from parity.compare.side import Clock, Side
from parity.values.noise import randomise
from parity.verdicts import ANY_RUNG, Requirement

__all__ = ["AS_WRITTEN", "Session"]

AS_WRITTEN = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compiler options for a program that runs a few times, such as one that makes an initial state."""

KEPT_SIDES = 8
"""How many traced and compiled sides stay in memory; the longest unused goes first."""
KEPT_CREATORS = 2
"""The same for what makes initial states."""

T = TypeVar("T")


class Session:
    """Keeps what cases share, so that nothing is built, traced or compiled twice in a session.

    Args:
        paranoid: compile and run also what is proved.
        required: rungs that cases of one structure may rest on.
        backend: where the cases are placed; by default each case's is found by its name.
        tell: told of each phase that begins, in words.
        examine: is given each error of a case once, before the run goes on.
    """

    def __init__(
        self,
        *,
        paranoid: bool = False,
        required: Requirement = ANY_RUNG,
        backend: Backend | None = None,
        tell: Callable[[str], None] = lambda phase: None,
        examine: Callable[[BaseException], object] = lambda error: None,
    ):
        self.paranoid, self.required, self.examine = paranoid, required, examine
        self._backend = backend
        self.clock = Clock(tell)
        self._sides: dict[Hashable, Side] = {}
        self._creators: dict[Build, Callable[[jax.Array], dict[str, Any]]] = {}
        self._states: dict[Build, dict[str, np.ndarray]] = {}
        self._remembered: dict[Hashable, Any] = {}

    def backend_of(self, case: Case) -> Backend:
        """Returns the backend on which a case is placed."""
        given = self._backend
        return given if given is not None and given.name == case.backend else find(case.backend)

    def side(self, build: Build, case: Case, mesh: MeshSpec) -> Side:
        """Returns the side of ``build`` for ``case``, the same one for the same build, program and mesh."""
        key = (build, case.program, mesh, case.backend)
        side = self._sides.pop(key, None)
        if side is None:
            side = Side(build, build.programs[case.program], mesh, self.backend_of(case), self.clock)
        self._sides[key] = side
        while len(self._sides) > KEPT_SIDES:
            self._sides.pop(next(iter(self._sides)))
        return side

    def state(self, build: Build) -> dict[str, np.ndarray]:
        """Returns a random state of ``build``, on the host."""
        if build not in self._states:
            self._states[build] = randomise(self.fresh(build, SEED), build.leaves, SEED)
        return self._states[build]

    def fresh(self, build: Build, seed: int) -> dict[str, np.ndarray]:
        """Returns the initial state of ``build`` for a seed, on the host; few runs pay for no optimisation."""
        create = self._creators.pop(build, None)
        if create is None:
            name, key = f"{build.name}, initial state", jax.random.key(seed)
            with self.clock.phase(name, "trace"):
                check_fits_in_memory(build)
                lowered = jax.jit(build.create).lower(key)
            with self.clock.phase(name, "compile"):
                create = lowered.compile(compiler_options=AS_WRITTEN)
        self._creators[build] = create
        while len(self._creators) > KEPT_CREATORS:
            self._creators.pop(next(iter(self._creators)))
        with self.clock.phase(build.name, "execute"):
            return to_host(create(jax.random.key(seed)))

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns what ``make`` made when ``key`` was first asked for."""
        if key not in self._remembered:
            self._remembered[key] = make()
        return self._remembered[key]
