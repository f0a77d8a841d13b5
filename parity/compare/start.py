"""The program that makes the initial state of a build, observed as far as a channel needs."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Hashable
from typing import Any

import jax
from jax.extend import core

from parity.builds.build import SEED, Build
from parity.builds.tree import Role, as_data
from parity.builds.weights.map import strip_container
from parity.compare.backends.backend import UNOPTIMISED
from parity.compare.backends.workers import GIB, machine_memory
from parity.compare.clock import Clock
from parity.compare.memo import Memo, Once
from parity.ir.functions import declaration
from parity.ir.jax_internals import content, live
from parity.ir.jaxprs import equations
from parity.ir.location import SourceLocation, equation_source, result_source

MANY_OF_A_TYPE = 20
"""Number of leaves of a type, on average, from which a state is made operation by operation."""
COPIES = 4
"""Least number of copies of a state in a run: of both sides, on the host and on the device."""


@dataclasses.dataclass(frozen=True, eq=False)
class Start:
    """The program that makes all leaves of an initial state from a key, in the order of their paths."""

    build: Build
    clock: Clock
    memo: Memo = dataclasses.field(default_factory=Memo, init=False, repr=False)

    @property
    def _name(self) -> str:
        return f"{self.build.name}, initial state"

    @Once
    def traced(self) -> jax.stages.Traced:
        """The traced program."""

        def create(key: jax.Array) -> dict[str, Any]:
            state = self.build.create(key)
            return {path: state[path] for path in self.build.leaves}

        with self.clock.phase(self._name, "trace"):
            return jax.jit(create).trace(jax.random.key(SEED))

    @Once
    def lowered(self) -> jax.stages.Lowered:
        """The lowered program."""
        traced = self.traced
        with self.clock.phase(self._name, "lower"):
            return traced.lower()

    def source(self, path: str, *, stacking: bool = False) -> SourceLocation | None:
        """Returns the lines of the user that make, or stack, a leaf, else the line that declares it; None if none does.

        A framework's lines remain if they lead to the user's line that chose them, such as that of an optimizer.
        """
        jaxpr = self.traced.jaxpr.jaxpr
        found = result_source(jaxpr, jaxpr.outvars[sorted(self.build.leaves).index(path)])
        found = found and (found.stacking if stacking else found)
        if found is None:
            declared = not stacking and self.build.leaves[path].role in (Role.PARAMS, Role.STATE)
            line = declared and declaration(strip_container(path).rpartition("/")[2], self.files)
            return SourceLocation(frames=(line,)) if line else None
        if found.maker:
            return found
        kept = tuple(frame for frame in found.frames if not frame.in_library or frame.may_be_compared)
        return dataclasses.replace(found, frames=kept or found.frames)

    def module_source(self, paths: Collection[str]) -> SourceLocation | None:
        """Returns the user's innermost line around the making of all of some leaves, such as those of a module."""
        found = [source.own for source in map(self.source, paths) if source]
        if len(found) < len(paths):
            return None
        places = zip(*map(reversed, found), strict=False)
        shared = [place[0] for place in itertools.takewhile(lambda each: len(set(each)) == 1, places)]
        return SourceLocation(frames=tuple(reversed(shared))) if shared else None

    @Once
    def files(self) -> set[str]:
        """The files of the user's lines that make operations."""
        sources = map(equation_source, equations(self.traced.jaxpr))
        return {frame.file for source in sources for frame in source.own}

    @Once
    def identity(self) -> Hashable:
        """The program as bytes, and its results; equal for builds that differ only in, for example, remat.

        It is an object that equals no other if the program's text leaves something open.
        """
        program = content(self.lowered)
        return (program, *sorted(self.build.leaves)) if program else object()

    def compile(self) -> Callable[[jax.Array], dict[str, Any]]:
        """Returns the compiled program, without optimisation because it runs only a few times.

        Raises:
            SideError: the state does not fit this machine, or the program does not compile.
        """
        with self.clock.phase(self._name, "compile"):
            _check_fits_in_memory(self.build)
            return self.lowered.compile(compiler_options=UNOPTIMISED)

    def creator(self) -> Callable[[jax.Array], dict[str, Any]]:
        """Returns a function that makes the state, of which the last bits are open.

        It is the compiled program, unless many leaves share each type: XLA compiles each draw by itself, JAX each type.

        Raises:
            SideError: see `compile`.
        """
        if not self.shares_types(self.build.leaves):
            return self.compile()
        with self.clock.phase(self._name, "compile"):
            _check_fits_in_memory(self.build)
        return self._evaluator(self.build.leaves)

    def of_keys(self, paths: Collection[str]) -> Callable[[jax.Array], dict[str, Any]]:
        """Returns a function that makes some leaves from many keys, along a first axis; compiled as in `creator`."""
        evaluate = self._evaluator(paths)
        calls_python = any("callback" in each.primitive.name for each in equations(self.traced.jaxpr))
        if self.shares_types(paths) and not calls_python:
            return jax.vmap(evaluate)
        return jax.jit(functools.partial(jax.lax.map, evaluate), compiler_options=UNOPTIMISED)

    def shares_types(self, paths: Collection[str]) -> bool:
        """True if so many leaves share each type that they are made operation by operation."""
        types = {(leaf.shape, leaf.dtype) for leaf in (self.build.abstract[path] for path in paths)}
        return len(paths) >= MANY_OF_A_TYPE * len(types)

    def _evaluator(self, paths: Collection[str]) -> Callable[[jax.Array], dict[str, Any]]:
        """Returns a function that makes some leaves operation by operation."""
        jaxpr, order = self.traced.jaxpr, sorted(self.build.leaves)
        needed = live(jaxpr.jaxpr, [path in paths for path in order])
        evaluate, made = core.jaxpr_as_fun(jaxpr.replace(jaxpr=needed)), sorted(paths)
        return lambda key: dict(zip(made, evaluate(key), strict=True))


class InsufficientMemoryError(ValueError):
    """A state is larger than the memory for it."""


def state_bytes(build: Build) -> int:
    """Returns the bytes of a build's state."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in map(as_data, build.abstract.values()))


def _check_fits_in_memory(build: Build) -> None:
    """Raises `InsufficientMemoryError` if this machine cannot make a build's state and compare it."""
    held, host = state_bytes(build), machine_memory()
    if COPIES * held > host:
        raise InsufficientMemoryError(
            f"a state of {_gib(held)}, of which a run holds {COPIES}, got {_gib(host)} of memory, expected "
            f"{_gib(COPIES * held)}; prove it alone with parity prove, which makes no state, or compare a smaller "
            "configuration"
        )


def _gib(count: int) -> str:
    return f"{count / GIB:.3g} GiB"
