"""Everything the channels of one case share: both sides, the weight map, the state, the outputs."""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from parity.backends.compiler import Compiler
from parity.backends.registry import find
from parity.cases.case import Case
from parity.comparison.alone import Alone, arrays_alone, beginning, with_counters_of, without_alone
from parity.comparison.pairing import pair_positions, state_fingerprints, state_order
from parity.comparison.side import Clock, Side
from parity.programs.build import Build, Group, renamed
from parity.programs.meshes import MeshSpec
from parity.programs.tree import to_host
from parity.prove import Frontier, Proof, heavy_beside, prove
from parity.prove.reader import read_program
from parity.values.ladder import Judge, deviation
from parity.values.noise import DRAWS, measure_floor, nudge, randomise, to_float64
from parity.values.routing import Flip, find_flips, forced_inputs, margin_noise
from parity.verdicts import Verdict
from parity.weights.map import WeightMap, infer

__all__ = ["Comparison", "Workbench"]

SEED = 20_240_229
KEPT_SIDES = 8
"""How many traced and compiled sides stay in memory; the longest unused goes first."""

Outputs = dict[str, dict[str, np.ndarray]]
T = TypeVar("T")


class Workbench:
    """Keeps what cases share, so that nothing is built, traced or compiled twice in a session.

    Args:
        paranoid: compile and run also what is proved.
        compiler: compiles for backends that do so in other processes; one for all by default.
        tell: told of each phase that begins, in words.
    """

    def __init__(
        self,
        *,
        paranoid: bool = False,
        compiler: Compiler | None = None,
        tell: Callable[[str], None] = lambda phase: None,
    ):
        self.paranoid, self._compiler = paranoid, compiler
        self.clock = Clock(tell)
        self._sides: dict[Hashable, Side] = {}
        self._states: dict[Build, dict[str, np.ndarray]] = {}
        self._remembered: dict[Hashable, Any] = {}

    def side(self, build: Build, case: Case, mesh: MeshSpec) -> Side:
        """Returns the side of ``build`` for ``case``, the same one for the same build, program and mesh."""
        key = (build, case.program, mesh, case.backend)
        side = self._sides.pop(key, None)
        if side is None:
            program, backend = build.programs[case.program], find(case.backend, self._compiler)
            side = Side(build, program, mesh, backend, self.clock)
        self._sides[key] = side
        while len(self._sides) > KEPT_SIDES:
            self._sides.pop(next(iter(self._sides)))
        return side

    def state(self, build: Build) -> dict[str, np.ndarray]:
        """Returns a random state of ``build``, on the host."""
        if build not in self._states:
            with self.clock.phase(build.name, "execute"):
                fresh = to_host(jax.jit(build.create)(jax.random.key(SEED)))
            self._states[build] = randomise(fresh, build.leaves, SEED)
        return self._states[build]

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns what ``make`` made when ``key`` was first asked for."""
        if key not in self._remembered:
            self._remembered[key] = make()
        return self._remembered[key]


class Comparison:
    """One case at work; everything is computed when first asked for, and once.

    Args:
        case: what to compare.
        bench: what is shared with other cases.
    """

    def __init__(self, case: Case, bench: Workbench):
        self.case, self.bench = case, bench
        self.builds = (case.reference(), case.candidate())

    @functools.cached_property
    def reference(self) -> Side:
        """The reference side."""
        return self.bench.side(self.builds[0], self.case, self.case.meshes[0])

    @functools.cached_property
    def candidate(self) -> Side:
        """The candidate side."""
        return self.bench.side(self.builds[1], self.case, self.case.meshes[1])

    @functools.cached_property
    def compiling(self) -> tuple[Side, Side]:
        """Both sides, being compiled: side by side, where the backend does that in other processes."""
        sides = (self.reference, self.candidate)
        for side in sides:
            side.begin()
        return sides

    @functools.cached_property
    def reordered(self) -> Side:
        """The candidate with its arguments and results in the reference's order; needs a map that moves nothing."""
        assert self.weights.is_identity
        names = {entry.candidate[0]: entry.reference[0] for entry in self.weights.entries}
        names.update({path: path for path in self.weights.alone[1]})
        build = renamed(self.candidate.build, self.candidate.program, names)
        return self.bench.side(build, self.case, self.case.meshes[1])

    @functools.cached_property
    def weights(self) -> WeightMap:
        """The weight map.

        Raises:
            MapError: leaves are left over.
        """
        return infer(
            self.builds[0].leaves,
            self.builds[1].leaves,
            self.case.rules,
            lambda: (state_fingerprints(self.reference), state_fingerprints(self.candidate)),
            lambda: (state_order(self.reference), state_order(self.candidate)),
        )

    @functools.cached_property
    def proof(self) -> Proof | None:
        """The proof or its frontier; None where programs must differ: other meshes, or a map that moves numbers."""
        if not self.weights.is_identity or self.case.meshes[0] != self.case.meshes[1]:
            return None
        sides = (self.reference, self.candidate)
        pairing = pair_positions(*sides, self.weights)
        if pairing.unmatched:
            differences = tuple(finding.sentence() for finding in pairing.unmatched)
            entry = Frontier(where="arguments and results", differences=differences)
            return Proof(proved=False, operations=(0, 0), seconds=0.0, frontier=(entry,))
        with self.bench.clock.phase("both sides", "prove"):
            programs = (
                read_program(side.lowered, without=dropped) if dropped else side.operations
                for side, dropped in zip(sides, pairing.alone.results, strict=True)
            )
            return prove(*programs, arguments=pairing.arguments, results=pairing.results, alone=pairing.alone)

    @property
    def settled(self) -> bool:
        """Whether a proof makes compiling and running needless, or is all that there can be."""
        seen_too = self.bench.paranoid and self.reference.backend.executes
        return not seen_too and self.proof is not None and self.proof.proved

    @property
    def compiles_alike(self) -> bool:
        """Whether a proof makes it needless to look at compiled programs: not where that is what one came for."""
        return self.settled and not self.works_alone and not self.reference.backend.inspects

    @functools.cached_property
    def alone(self) -> tuple[list[Alone], list[Alone]]:
        """The arrays of RNG state that only one side has."""
        ours, theirs = (
            arrays_alone(build.abstract, paths)
            for build, paths in zip(self.builds, self.weights.alone, strict=True)
        )
        return ours, theirs

    @functools.cached_property
    def works_alone(self) -> bool:
        """Whether state that one side has alone costs that side loops or collectives of its own."""
        sides, positions = (self.reference, self.candidate), self.weights.alone
        if not any(positions):
            return False
        dropped = pair_positions(*sides, self.weights).alone.results
        return any(
            heavy_beside(side.operations, read_program(side.lowered, without=paths))
            for side, paths in zip(sides, dropped, strict=True)
            if paths
        )

    @functools.cached_property
    def state(self) -> dict[str, np.ndarray]:
        """The reference's state before the program runs."""
        return self.case.arrange(self.bench.state(self.builds[0]))

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns what ``make`` made when ``key`` was first asked for, in this case or another."""
        return self.bench.remember(key, make)

    @functools.cached_property
    def candidate_state(self) -> dict[str, np.ndarray]:
        """The same numbers as the candidate's state, in buffers of their own."""
        carried = {
            **self.weights.to_candidate(self.state),
            **{path: beginning(path, self.builds[1].abstract[path]) for path in self.weights.alone[1]},
        }
        abstract = self.builds[1].abstract
        return {path: _as_stored(array, abstract[path].dtype) for path, array in carried.items()}

    @functools.cached_property
    def outputs(self) -> tuple[Outputs, Outputs]:
        """What both sides return, the candidate's under the reference's paths.

        Where the sides route otherwise and all that is ties, both run with the reference's choices.
        """
        return self._forced.outputs if self.only_ties else self._free.outputs

    @property
    def only_ties(self) -> bool:
        """Whether the sides route otherwise, and only where rounding decides."""
        return bool(self.flips) and all(flip.is_tie for flip in self.flips)

    @functools.cached_property
    def flips(self) -> list[Flip]:
        """The tokens that choose otherwise on the two sides, told from what follows from an earlier choice.

        With the reference's choices forced on both sides, every layer sees what it would see without
        earlier flips, and says what it would choose.
        """
        ours, theirs = (outputs.get(Group.ROUTING, {}) for outputs in self._free.outputs)
        free = find_flips(ours, theirs, {}) if set(ours) == set(theirs) else []
        if not free or not self._can_force:
            return free
        reference, candidate = (outputs[Group.ROUTING] for outputs in self._forced.outputs)
        runs = [again[Group.ROUTING] for again in self._forced.nudged]
        exact = [self._forced.exact[Group.ROUTING]] if self.case.exact else []
        noise = margin_noise(reference, [*runs, *exact])
        return find_flips(reference, candidate, noise) or find_flips(ours, theirs, noise)

    @property
    def _can_force(self) -> bool:
        """Whether choices can be given as inputs: those of the first step are all there are."""
        return self.reference.program.steps == 1

    @functools.cached_property
    def _free(self) -> "_Runs":
        return _Runs(self, {})

    @functools.cached_property
    def _forced(self) -> "_Runs":
        return _Runs(self, forced_inputs(self._free.outputs[0][Group.ROUTING]))

    def to_reference(self, leaves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Renames state paths; others, such as ``logits``, are the same on both sides."""
        targets = {path for entry in self.weights.entries for path in entry.candidate}
        back: dict[str, np.ndarray] = {}
        for prefix, group in _by_step(leaves).items():
            mapped = {path: array for path, array in group.items() if path in targets}
            back.update({prefix + path: array for path, array in self.weights.to_reference(mapped).items()})
            back.update({prefix + path: array for path, array in group.items() if path not in targets})
        return back

    def exact_side(self) -> Side:
        """The reference in float64."""
        assert self.case.exact is not None
        return self.bench.side(self.case.exact(), self.case, self.case.mesh)

    @functools.cached_property
    def _differs_anywhere(self) -> bool:
        """Whether any process sees a difference in what it holds."""
        sides = self.outputs
        differs = any(
            deviation(path, array, sides[1][group][path]) is not None
            for group, leaves in sides[0].items()
            for path, array in leaves.items()
            if path in sides[1].get(group, {})
        )
        return bool(np.any(multihost_utils.process_allgather(np.array(differs))))

    def judge(self, group: str) -> Judge:
        """Returns what the lower rungs of the ladder need for one group of outputs.

        What is proved and runs all the same must give equal bits.
        """
        proved = self.proof is not None and self.proof.proved
        runs = self._forced if self.only_ties else self._free
        if jax.process_count() > 1 and self._differs_anywhere:
            _ = runs.nudged, self.case.exact and runs.exact  # by all processes: none can run alone
        return Judge(
            floor=lambda: measure_floor(runs.outputs[0][group], [again[group] for again in runs.nudged]),
            exact=(lambda: runs.exact[group]) if self.case.exact else None,
            lowest=Verdict.BITWISE if proved else self.case.lowest,
        )


class _Runs:
    """What both sides return, and what the ladder measures them by, with choices forced or free.

    Args:
        work: the comparison.
        forced: inputs beside the batch, the same on every side.
    """

    def __init__(self, work: Comparison, forced: Mapping[str, np.ndarray]):
        self._work, self._extra = work, forced

    def _side(self, side: Side) -> Side:
        if not self._extra:
            return side
        build, extra = side.build, self._extra
        shapes = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in extra.items()}
        forced = dataclasses.replace(
            build,
            name=f"{build.name} with its routing forced",
            inputs=lambda seed: {**build.inputs(seed), **extra},
            abstract_inputs={**build.abstract_inputs, **shapes},
        )
        return dataclasses.replace(side, build=forced)

    @functools.cached_property
    def _reference(self) -> Side:
        return self._side(self._work.reference)

    @functools.cached_property
    def outputs(self) -> tuple[Outputs, Outputs]:
        """What both sides return, the candidate's under the reference's paths."""
        work = self._work
        reference = self._reference.run(work.state, SEED)
        candidate = self._side(work.candidate).run(work.candidate_state, SEED)
        ours, theirs = (
            without_alone(outputs, paths)
            for outputs, paths in zip((reference, candidate), work.weights.alone, strict=True)
        )
        back = {group: work.to_reference(leaves) for group, leaves in theirs.items()}
        if Group.STATE in back:
            back[Group.STATE] = with_counters_of(ours.get(Group.STATE, {}), back[Group.STATE])
        return ours, back

    @functools.cached_property
    def nudged(self) -> list[Outputs]:
        """What the reference returns from weights and inputs that are one ulp off, draw by draw."""
        runs = []
        for draw in range(DRAWS):
            rng = np.random.default_rng(1_000 + draw)
            alter = functools.partial(nudge, rng=rng)
            run = self._reference.run(alter(self._work.state), SEED, alter)
            runs.append(without_alone(run, self._work.weights.alone[0]))
        return runs

    @functools.cached_property
    def exact(self) -> Outputs:
        """What the reference returns in float64."""
        with jax.enable_x64(True):
            return self._side(self._work.exact_side()).run(to_float64(self._work.state), SEED)


def _as_stored(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Returns a copy in the dtype the candidate stores; a difference is the tree channel's to report."""
    is_key = jnp.issubdtype(dtype, jax.dtypes.prng_key)
    return np.array(array, copy=True, dtype=None if is_key else dtype)


def _by_step(leaves: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Splits paths such as ``step3/params/...`` into prefix and path."""
    groups: dict[str, dict[str, np.ndarray]] = {}
    for path, array in leaves.items():
        first, _, rest = path.partition("/")
        stepped = first.startswith("step") and first[4:].isdigit() and bool(rest)
        prefix, name = (f"{first}/", rest) if stepped else ("", path)
        groups.setdefault(prefix, {})[name] = array
    return groups
