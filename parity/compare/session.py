"""The sides and the initial states that the cases of a session share."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import jax
import numpy as np

from parity.builds.build import SEED, Build
from parity.builds.meshes import MeshSpec
from parity.builds.tree import to_host
from parity.cases.case import Case
from parity.compare.backends.backend import Backend
from parity.compare.backends.registry import find
from parity.compare.clock import Clock
from parity.compare.memo import Memo
from parity.compare.side import Side
from parity.compare.start import Start
from parity.values.noise import randomise
from parity.values.rng.recipes import Recipes
from parity.verdicts import ANY_RUNG, Requirement

KEPT_SIDES = 8
"""Number of traced and compiled sides kept in memory; the least recently used is dropped first."""
KEPT_CREATORS = 2
"""Number of compiled programs kept in memory that make initial states."""
KEPT_EVALUATIONS = 16
"""Number of programs kept in memory that a search evaluated operation by operation: four for each step of a case."""

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")


class Session:
    """Keeps the objects that cases share, so that nothing is built, traced or compiled twice in a session.

    Args:
        paranoid: compile and run proved cases too.
        required: sufficient rungs for cases of one structure.
        backend: the backend of the cases; by default each case's is found by its name.
        notify: called with each phase that begins, as text.

    Attributes:
        memo: results that several cases share, such as the weight map of two builds.
        recipes: numbers of recipes, which are shared by the initial states of all builds.
    """

    def __init__(
        self,
        *,
        paranoid: bool = False,
        required: Requirement = ANY_RUNG,
        backend: Backend | None = None,
        notify: Callable[[str], None] = lambda phase: None,
    ):
        self.paranoid, self.required = paranoid, required
        self._notify = notify
        self._backend = backend
        self.clock = Clock(notify)
        self.memo, self.recipes = Memo(), Recipes()
        self._sides: dict[Hashable, Side] = {}
        self._creators: dict[Build, Callable[[jax.Array], dict[str, Any]]] = {}
        self._evaluations: dict[Hashable, Any] = {}

    def renewed(self) -> "Session":
        """Returns a session with the same options that shares nothing with this one."""
        return Session(
            paranoid=self.paranoid, required=self.required, backend=self._backend, notify=self._notify
        )

    def backend_of(self, case: Case) -> Backend:
        """Returns the backend on which a case is placed."""
        given, name = self._backend, case.placement.backend
        return given if given is not None and given.name == name else find(name)

    def side(self, build: Build, case: Case, mesh: MeshSpec) -> Side:
        """Returns the side of ``build`` for ``case``; equal builds, programs and meshes share one."""

        def make() -> Side:
            return Side(build, build.programs[case.program], mesh, self.backend_of(case), self.clock)

        key = (build, case.program, mesh, case.placement.backend)
        return _recent(self._sides, key, make, KEPT_SIDES)

    def evaluation(self, make: Callable[[], T], by: Hashable) -> T:
        """Returns ``make()``, or a recent result for the same values."""
        return _recent(self._evaluations, by, make, KEPT_EVALUATIONS)

    def start(self, build: Build) -> Start:
        """Returns the program that makes the initial state of ``build``."""
        return self.memo(Start, build, self.clock)

    def state(self, build: Build) -> dict[str, np.ndarray]:
        """Returns a random state of ``build``, on the host."""
        return self.memo(self._random_state, build)

    def _random_state(self, build: Build) -> dict[str, np.ndarray]:
        return randomise(self.fresh(build, SEED), build.leaves, SEED)

    def fresh(self, build: Build, seed: int) -> dict[str, np.ndarray]:
        """Returns the initial state of ``build`` for a seed, on the host."""
        create = _recent(self._creators, build, lambda: self.start(build).creator(), KEPT_CREATORS)
        with self.clock.phase(build.name, "execute"):
            return to_host(create(jax.random.key(seed)))


def _recent(held: dict[Key, T], key: Key, make: Callable[[], T], most: int) -> T:
    """Returns the entry of ``key``, made if absent; drops the least recently used beyond ``most``."""
    found = held.pop(key) if key in held else make()
    held[key] = found
    while len(held) > most:
        held.pop(next(iter(held)))
    return found
