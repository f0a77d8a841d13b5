"""Everything the channels of one case share: both sides, the weight map, the state, the outputs."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from parity.builds.build import Group, renamed
from parity.builds.weights.inference import Uses, infer
from parity.builds.weights.map import MapError, Rule, WeightMap
from parity.builds.weights.modules import Order
from parity.cases.case import Case, made
from parity.compare.backends.registry import find
from parity.compare.moving import pair_programs
from parity.compare.pairing import Pairing, pair_positions, state_fingerprints, state_order
from parity.compare.runs import SEED, Outputs, Runs
from parity.compare.session import AS_WRITTEN, Session
from parity.compare.side import Side, SideError, built
from parity.compare.unpaired import Alone, arrays_alone, beginning
from parity.ir.stablehlo.reader import read_program
from parity.prove import Frontier, Proof, has_extra_loops, is_one_program, loop_counts_differ, prove
from parity.values.ladder import Judge, deviation
from parity.values.noise import measure_floor
from parity.values.routing import ChangedChoice, find_flips, forced_inputs, margin_noise
from parity.verdicts import Finding, Requirement, Verdict

if TYPE_CHECKING:
    from parity.prove.exact import Equality

__all__ = ["AS_WRITTEN", "SEED", "Comparison", "Session"]

T = TypeVar("T")


class Comparison:
    """One case at work; everything is computed when first asked for, and once.

    Args:
        case: what to compare.
        bench: what is shared with other cases.
    """

    def __init__(self, case: Case, bench: Session):
        self.case, self.bench = case, bench
        self._mesh = find(case.backend, bench.compiler).mesh
        makes = zip(("reference", "candidate"), (case.reference, case.candidate), case.meshes, strict=True)
        self.builds = tuple(built(name, made, make, self._mesh, mesh) for name, make, mesh in makes)
        self._own: dict[Hashable, Any] = {}

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
        """The weight map: one for all programs of the two builds.

        Raises:
            MapError: leaves are left over, or two programs demand different maps.
        """
        rules = tuple(self.case.rules)
        found = self.remember(("weights", *self.builds, rules), lambda: self._inferred(rules))
        if isinstance(found, MapError):
            raise found
        return found

    def _inferred(self, rules: tuple[Rule, ...]) -> WeightMap | MapError:
        """Infers the weight map, or returns why there is none: every channel asks, and looking is dear."""
        leaves = [build.leaves for build in self.builds]
        try:
            return infer(leaves[0], leaves[1], rules, self._uses, self._orders)
        except MapError as error:
            return error

    def _orders(self) -> Order:
        return state_order(self.reference), state_order(self.candidate)

    def _uses(self) -> Uses:
        """How every program that both builds have uses each leaf; one that cannot be traced says nothing."""
        uses = {}
        for program in sorted(set(self.builds[0].programs) & set(self.builds[1].programs)):
            case = dataclasses.replace(self.case, program=program)
            with contextlib.suppress(SideError):  # the program's own case reports it
                ours, theirs = (
                    self._fingerprints(self.bench.side(build, case, mesh))
                    for build, mesh in zip(self.builds, self.case.meshes, strict=True)
                )
                uses[program] = (ours, theirs)
        return uses

    def _fingerprints(self, side: Side) -> dict[str, str]:
        return self.remember(("fingerprints", *side.identity), lambda: state_fingerprints(side))

    @functools.cached_property
    def proof(self) -> Proof | None:
        """The proof or its frontier; None where programs must differ and are not shown to do the same operations.

        They must differ on other meshes, and where the map moves numbers.
        """
        if self.case.meshes[0] != self.case.meshes[1]:
            return None
        found = self._compared
        if found is None or found.rung is Verdict.UNPROVED:
            shown = self.walked is not None and self.walked.reordered
            return self.walked if shown else found if self.weights.is_identity else None
        return found

    @functools.cached_property
    def walked(self) -> Proof | None:
        """What holds of both sides turn by turn and element by element; None where that is not asked.

        It is asked where a proof fails, on programs with other loops or under a map that moves numbers.
        """
        from parity.compare.unrolled import walk

        if self.case.meshes[0] != self.case.meshes[1]:
            return None
        if self._compared is not None and self._compared.rung is not Verdict.UNPROVED:
            return None
        sides = self.reference.operations, self.candidate.operations
        if self.weights.is_identity and not loop_counts_differ(*sides):
            return None
        with self.bench.clock.phase("both sides", "prove"):
            return walk(self.reference, self.candidate, self.weights, self.case)

    @property
    def differences(self) -> tuple[Finding, ...]:
        """Where both sides are not one program operation by operation, if that was asked before a walk."""
        return self._compared.findings() if self._compared else ()

    @functools.cached_property
    def _compared(self) -> Proof | None:
        """The proof operation by operation, or by rules, or its frontier; None where the map moves more than that."""
        pairing = self._pairing()
        if pairing is None:
            return None
        if pairing.unmatched:
            differences = tuple(finding.sentence() for finding in pairing.unmatched)
            entry = Frontier(where="arguments and results", differences=differences)
            return Proof(proved=False, operations=(0, 0), seconds=0.0, frontier=(entry,))
        return self._asked(prove, pairing)

    def _pairing(self) -> Pairing | None:
        return pair_programs(self.reference, self.candidate, self.weights)

    def _asked(self, prover: Callable[..., T], pairing: Pairing) -> T:
        with self.bench.clock.phase("both sides", "prove"):
            programs = (
                read_program(side.functions, without=dropped) if dropped else side.operations
                for side, dropped in zip((self.reference, self.candidate), pairing.alone.results, strict=True)
            )
            pairs = {"arguments": pairing.arguments, "results": pairing.results}
            return prover(*programs, **pairs, alone=pairing.alone)

    @property
    def required(self) -> Requirement:
        """The rungs this case may rest on; those required of all cases count if both sides have one structure."""
        own = Requirement.of(self.case.require, f"{self.case.id}: require")
        moved = self.proof is None or not self.weights.is_identity
        return own if moved or "program" in self.case.not_applicable else own & self.bench.required

    @functools.cached_property
    def numbers(self) -> Requirement:
        """The rungs that numbers must reach if they are run.

        Whatever meets the requirement without them says nothing of rounding: a reordered program leaves the noise
        floor, a proof in exact arithmetic that is run all the same what is arbitrated.
        """
        required, shown = self.required, self.proof.rung if self.proof else Verdict.UNPROVED
        if shown is Verdict.PROVED:
            return Requirement((Verdict.BITWISE,))
        if required.met_by(shown):
            # Below the proof, `reordered` takes the same operations in any order that give equal bits.
            least = Verdict.BITWISE if Verdict.REORDERED in required.rungs else Verdict.FLOOR
            return Requirement((*required.rungs, least))
        rests = self.must_run and Verdict.EXACT in required.rungs and self.equality.proved
        return Requirement((*required.rungs, Verdict.ARBITRATED)) if rests else required

    @property
    def must_run(self) -> bool:
        """Whether one asked to run what is proved, too, and that can be done."""
        return (self.bench.paranoid or self.case.paranoid) and self.reference.backend.executes

    @property
    def settled(self) -> bool:
        """Whether a proof makes running needless, or is all that there can be: the values are equal."""
        return not self.must_run and self.proof is not None and self.proof.proved

    @functools.cached_property
    def equality(self) -> "Equality":
        """The proof, or its failure, that both sides are equal in exact arithmetic."""
        from parity.compare.exactness import named, relation
        from parity.prove.exact import ProofCache, equal

        with self.bench.clock.phase("both sides", "prove"):
            sides = named(self.reference), named(self.candidate)
            links = relation(self.reference, self.weights, self.case)
            return equal(*sides, links, self.remember(ProofCache, ProofCache))

    @property
    def exactly(self) -> "Equality | None":
        """The same; None where the case does not rest on that."""
        # Before `required`, which asks for the proof.
        if self.must_run or Verdict.EXACT not in Requirement.of(self.case.require, "require").rungs:
            return None
        return self.equality if Verdict.EXACT in self.required.rungs else None

    @property
    def same_program(self) -> bool:
        """Whether both are proved one program operation by operation: a proof by rules is one of values alone."""
        return self.proof is not None and self.proof.same_program

    def is_one_program(self) -> bool:
        """Says what `same_program` says without the proof: no rules are tried, no walk, and no place is looked for."""
        pairing = self._pairing() if self.case.meshes[0] == self.case.meshes[1] else None
        return pairing is not None and not pairing.unmatched and self._asked(is_one_program, pairing)

    @property
    def proof_covers_compiled(self) -> bool:
        """Whether a proof makes it needless to look at compiled programs: not where that is what one came for."""
        return (
            self.settled
            and self.same_program
            and not self.works_alone
            and not self.reference.backend.inspects
        )

    @functools.cached_property
    def alone(self) -> tuple[list[Alone], list[Alone]]:
        """The arrays of RNG state that only one side has."""
        tiled = self.reference.backend.tiled
        sides = zip(self.builds, self.weights.alone, strict=True)
        ours, theirs = (arrays_alone(build.abstract, paths, tiled=tiled) for build, paths in sides)
        return ours, theirs

    @functools.cached_property
    def works_alone(self) -> bool:
        """Whether state that one side has alone costs that side loops or collectives of its own."""
        sides, positions = (self.reference, self.candidate), self.weights.alone
        if not any(positions):
            return False
        dropped = pair_positions(*sides, self.weights).alone.results
        return any(
            has_extra_loops(side.operations, read_program(side.functions, without=paths))
            for side, paths in zip(sides, dropped, strict=True)
            if paths
        )

    @functools.cached_property
    def state(self) -> dict[str, np.ndarray]:
        """The reference's state before the program runs."""
        return self.case.arrange(self.bench.state(self.builds[0]))

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns what ``make`` made when ``key`` was first asked for in this case."""
        if key not in self._own:
            self._own[key] = make()
        return self._own[key]

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns what ``make`` made when ``key`` was first asked for, in this case or another."""
        return self.bench.remember(key, make)

    @functools.cached_property
    def candidate_state(self) -> dict[str, np.ndarray]:
        """The same numbers as the candidate's state, in buffers of their own."""
        return self.as_candidate(self.state)

    def as_candidate(self, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the reference's state as the candidate's, in buffers of their own."""
        abstract = self.builds[1].abstract
        carried = {
            **self.weights.to_candidate(state),
            **{path: beginning(path, abstract[path]) for path in self.weights.alone[1]},
        }
        return {path: _as_stored(array, abstract[path].dtype) for path, array in carried.items()}

    @property
    def refuted(self) -> bool:
        """True if both sides should be one program but no proof shows it."""
        if "program" in self.case.not_applicable or self.case.meshes[0] != self.case.meshes[1]:
            return False
        return self.proof is None or self.proof.rung is Verdict.UNPROVED

    @functools.cached_property
    def outputs(self) -> tuple[Outputs, Outputs]:
        """What both sides return, the candidate's under the reference's paths."""
        return self.runs.outputs

    @property
    def runs(self) -> Runs:
        """The runs that values are judged by: with the routing forced equal where rounding decides it."""
        return self._forced if self.only_ties else self._free

    @property
    def only_ties(self) -> bool:
        """Whether the sides route otherwise, and only where rounding decides."""
        return bool(self.flips) and all(flip.is_tie for flip in self.flips)

    @functools.cached_property
    def flips(self) -> list[ChangedChoice]:
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
    def _free(self) -> Runs:
        return Runs(self, {})

    @functools.cached_property
    def _forced(self) -> Runs:
        return Runs(self, forced_inputs(self._free.outputs[0][Group.ROUTING]))

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
        return self.bench.side(made(self.case.exact, self._mesh, self.case.mesh), self.case, self.case.mesh)

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
        runs = self.runs
        if jax.process_count() > 1 and self._differs_anywhere:
            _ = runs.nudged, self.case.exact and runs.exact  # by all processes: none can run alone
        return Judge(
            floor=lambda: measure_floor(runs.outputs[0][group], [again[group] for again in runs.nudged]),
            exact=(lambda: runs.exact[group]) if self.case.exact else None,
            required=self.numbers,
        )


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
