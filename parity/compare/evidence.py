"""Evidence of one case: everything that follows from its two sides and its settings, before anything runs."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from parity.builds.build import Build, Group, building
from parity.builds.tree import Role
from parity.builds.weights.inference import infer
from parity.builds.weights.map import MapError, WeightMap, normalise
from parity.builds.weights.modules import Order, Paths, Programs, moment_of
from parity.cases.case import Case, made
from parity.compare.clock import SideError
from parity.compare.memo import Memo, Once
from parity.compare.pairing import (
    Pairing,
    pair_positions,
    pair_programs,
    state_feeding,
    state_fingerprints,
    state_operations,
    state_order,
    unmatched_frontier,
)
from parity.compare.session import Session
from parity.compare.side import Side, built
from parity.compare.unpaired import UnpairedArray, carry_state, describe_unpaired
from parity.ir.jax_internals import content
from parity.ir.stablehlo.reader import read_program
from parity.prove import Proof, has_extra_loops, is_one_program, loop_counts_differ, prove
from parity.values.rng.demand import Demand
from parity.verdicts import SIDES, Finding, Requirement, Verdict

if TYPE_CHECKING:
    from parity.prove.exact import Equality

FORWARD = "forward"
"""The program of `twins` that only calls the model."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """The consequences of two builds under the settings of a case. Each property is computed when it is first read.

    Args:
        session: shared with other cases.
        given: the weight map; None to infer it.
        judged: the channels that are judged, as far as it is known.
    """

    case: Case
    session: Session
    builds: tuple[Build, Build]
    given: WeightMap | None = None
    judged: tuple[str, ...] = ()
    memo: Memo = dataclasses.field(default_factory=Memo, init=False, repr=False)

    @classmethod
    def of(cls, case: Case, session: Session, judged: Sequence[str] = ()) -> "Evidence":
        """Builds both sides of a case.

        Raises:
            SideError: a build failed.
        """
        mesh_of = session.backend_of(case).mesh
        makes = zip(SIDES, (case.reference, case.candidate), case.meshes, strict=True)
        with building():
            reference, candidate = (built(name, made, make, mesh_of, mesh) for name, make, mesh in makes)
        return cls(case=case, session=session, builds=(reference, candidate), judged=tuple(judged))

    def under(self, weights: WeightMap) -> "Evidence":
        """Returns the evidence under another weight map."""
        return dataclasses.replace(self, given=weights)

    def of_program(self, program: str) -> "Evidence":
        """Returns the evidence of another program of the two builds."""
        return dataclasses.replace(self, case=dataclasses.replace(self.case, program=program))

    def read(self, reader: Callable[["Evidence"], T]) -> T:
        """Returns a reading of this evidence, such as its runs; made once, and its failure is kept."""
        return self.memo(reader, self, by=())

    @Once
    def reference(self) -> Side:
        """The reference side."""
        return self.session.side(self.builds[0], self.case, self.case.meshes[0])

    @Once
    def candidate(self) -> Side:
        """The candidate side."""
        return self.session.side(self.builds[1], self.case, self.case.meshes[1])

    @property
    def sides(self) -> tuple[Side, Side]:
        """The reference and the candidate."""
        return self.reference, self.candidate

    def compiling(self) -> tuple[Side, Side]:
        """Starts to compile both sides, one at the same time as the other, and returns them."""
        for side in self.sides:
            side.begin()
        return self.sides

    def begin(self) -> None:
        """Starts to compile what has to run, and makes its state meanwhile; the channels report what fails."""
        with contextlib.suppress(Exception):
            if self.reference.backend.executes and self.proof is not None and not self.proof.proved:
                self.compiling()
                _ = self.state

    @property
    def on_one_mesh(self) -> bool:
        """True if both sides are placed in the same way."""
        return self.case.meshes[0] == self.case.meshes[1]

    # --- the weight map ---

    @Once
    def weights(self) -> WeightMap:
        """The weight map: one for all programs of the two builds.

        Raises:
            MapError: leaves have no partner, or two programs require different maps.
        """
        if self.given is not None:
            return self.given
        found = self.session.memo.share(_infer, self, by=(*self.builds, tuple(self.case.rules)))
        if isinstance(found, MapError):
            raise found
        return found

    @Once
    def unpaired(self) -> tuple[list[UnpairedArray], list[UnpairedArray]]:
        """The arrays of RNG state that only one side has."""
        tiled = self.reference.backend.tiled
        sides = zip(self.builds, self.weights.alone, strict=True)
        left, right = (describe_unpaired(build.abstract, paths, tiled=tiled) for build, paths in sides)
        return left, right

    @Once
    def unpaired_costs_loops(self) -> bool:
        """True if one-sided state adds loops or collectives to its side."""
        if not any(self.weights.alone):
            return False
        dropped = pair_positions(*self.sides, self.weights).alone.results
        return any(
            has_extra_loops(side.operations, read_program(side.functions, without=paths))
            for side, paths in zip(self.sides, dropped, strict=True)
            if paths
        )

    @Once
    def state(self) -> dict[str, np.ndarray]:
        """The reference's state before the program runs."""
        return self.case.prepare_state(self.session.state(self.builds[0]))

    @Once
    def candidate_state(self) -> dict[str, np.ndarray]:
        """The reference's state as the candidate's, in separate buffers."""
        return self.as_candidate(self.state)

    def as_candidate(self, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the reference's state as the candidate's, in separate buffers."""
        return carry_state(self.weights, self.builds[1].abstract, state)

    # --- proofs ---

    @Once
    def pairing(self) -> Pairing | None:
        """The paired arguments and results; None if the map moves more than the prover follows."""
        return pair_programs(*self.sides, self.weights)

    @Once
    def read_sides(self) -> tuple[Side, Side]:
        """The sides whose lowered programs are read: the reference twice if both are one, position by position."""
        pairing = self.pairing if self.on_one_mesh else None
        if pairing is None or not pairing.in_place:
            return self.sides
        with self.session.clock.phase("both sides", "prove"):
            left, right = (content(side.lowered) for side in self.sides)
        return (self.reference, self.reference) if left and left == right else self.sides

    @Once
    def operation_proof(self) -> Proof | None:
        """The proof operation by operation, or by rules, or its frontier; None without a `pairing`."""
        pairing = self.pairing
        if pairing is None:
            return None
        if pairing.unmatched:
            entries = unmatched_frontier(pairing, self.sides)
            return Proof(proved=False, operations=(0, 0), seconds=0.0, frontier=entries)
        compiling = self.compiling if self.reference.backend.executes else lambda: None
        return self._prove_with(functools.partial(prove, unproved=compiling), pairing)

    @Once
    def unrolled_proof(self) -> Proof | None:
        """The proof with loops unrolled, element by element.

        None if `operation_proof` succeeded, the meshes differ, or loop counts and weight layouts agree.
        """
        if not self.on_one_mesh:
            return None
        if self.operation_proof is not None and self.operation_proof.rung is not Verdict.UNPROVED:
            return None
        if self.weights.is_identity and not loop_counts_differ(*(side.operations for side in self.sides)):
            return None
        from parity.compare.exactness import walk  # most cases start faster without it

        with self.session.clock.phase("both sides", "prove"):
            return walk(self.sides, self.weights, self.case)

    @Once
    def proof(self) -> Proof | None:
        """The strongest proof, or its frontier; None if the programs must differ and no proof shows them equal.

        They must differ if the meshes differ or the map moves numbers. No rules are tried if they differ by intent and
        a proof in exact arithmetic settles the case.
        """
        if not self.on_one_mesh:
            return None
        exact = self.accepted_exact_proof if "program" in self.case.accept.not_applicable else None
        if exact and exact.proved and not self.is_one_program():
            return None
        found, unrolled = self.operation_proof, self.unrolled_proof
        if found is not None and found.rung is not Verdict.UNPROVED:
            return found
        if unrolled is not None and unrolled.reordered:
            return unrolled
        return found if self.weights.is_identity else None

    @Once
    def exact_proof(self) -> "Equality":
        """The proof, or its failure, that both sides are equal in exact arithmetic."""
        return self._equal_exactly(requested=True)

    @Once
    def exact_claim(self) -> str:
        """The claim of a proof in exact arithmetic, where no other proof succeeds, as words; empty if it fails too."""
        if not self.on_one_mesh or self.rung is Verdict.PROVED:
            return ""
        claim = "equal for all inputs if numbers were exact"
        if self.rung is Verdict.REORDERED:  # which implies it
            return claim
        found = self.exact_proof if self.case.accept.prove_exact else self._equal_exactly(requested=False)
        assumed = f", if {' and '.join(found.assumptions)}" if found.assumptions else ""
        return claim + assumed if found.proved else ""

    def _equal_exactly(self, *, requested: bool) -> "Equality":
        from parity.compare.exactness import equal_exactly  # most cases start faster without it

        with self.session.clock.phase("both sides", "prove"):
            return equal_exactly(self.sides, self.weights, self.case, requested=requested)

    @property
    def accepted_exact_proof(self) -> "Equality | None":
        """The proof in exact arithmetic; None unless the case accepts it and need not run."""
        # The case's own requirement comes first, because `required` needs the proof.
        if self.must_run or Verdict.EXACT not in Requirement.of(self.case.accept.require, "require").rungs:
            return None
        return self.exact_proof if Verdict.EXACT in self.required.rungs else None

    @property
    def differences(self) -> tuple[Finding, ...]:
        """The places where the operations differ."""
        return self.operation_proof.findings() if self.on_one_mesh and self.operation_proof else ()

    @property
    def rung(self) -> Verdict:
        """The rung of the proof; ``unproved`` if there is none."""
        return self.proof.rung if self.proof else Verdict.UNPROVED

    @property
    def same_program(self) -> bool:
        """True if both are proved one program operation by operation; a proof by rules covers only values."""
        return self.proof is not None and self.proof.same_program

    def is_one_program(self) -> bool:
        """Returns True if value numbering alone proves one program: no rules, no unrolling, no frontier."""
        pairing = self.pairing if self.on_one_mesh else None
        return pairing is not None and not pairing.unmatched and self._prove_with(is_one_program, pairing)

    def _prove_with(self, prover: Callable[..., T], pairing: Pairing) -> T:
        with self.session.clock.phase("both sides", "prove"):
            programs = (
                read_program(side.functions, without=dropped) if dropped else side.operations
                for side, dropped in zip(self.read_sides, pairing.alone.results, strict=True)
            )
            pairs = {"arguments": pairing.arguments, "results": pairing.results}
            return prover(*programs, **pairs, alone=pairing.alone)

    # --- requirements of the case ---

    @property
    def required(self) -> Requirement:
        """The sufficient rungs for this case; those required of all cases count if both sides have one structure."""
        own = Requirement.of(self.case.accept.require, f"{self.case.id}: require")
        if "program" in self.case.accept.not_applicable or self.proof is None or not self.weights.is_identity:
            return own
        return own & self.session.required

    @Once
    def required_of_numbers(self) -> Requirement:
        """The rungs that numbers must reach if they are run.

        A proof that meets the requirement does not bound rounding: a reordered program must reach the noise floor, and
        an exact proof that is also run must be arbitrated.
        """
        required = self.required
        if self.rung is Verdict.PROVED:
            return Requirement((Verdict.BITWISE,))
        if required.met_by(self.rung):
            # If unproved, `reordered` accepts the same operations in any order that give equal bits.
            least = Verdict.BITWISE if Verdict.REORDERED in required.rungs else Verdict.FLOOR
            return Requirement((*required.rungs, least))
        rests = self.must_run and Verdict.EXACT in required.rungs and self.exact_proof.proved
        return Requirement((*required.rungs, Verdict.ARBITRATED)) if rests else required

    @property
    def must_run(self) -> bool:
        """True if the user requires to run proved cases too, and the backend can."""
        return (self.session.paranoid or self.case.accept.paranoid) and self.reference.backend.executes

    @property
    def proof_covers_values(self) -> bool:
        """True if a proof shows the values equal and the case need not run."""
        return not self.must_run and self.rung is Verdict.PROVED

    @property
    def proof_covers_compiled(self) -> bool:
        """True if a proof covers the compiled programs. Always False on a backend that exists to inspect them."""
        return (
            self.proof_covers_values
            and self.same_program
            and not self.unpaired_costs_loops
            and not self.reference.backend.inspects
        )

    @property
    def unproved(self) -> bool:
        """True if both sides should be one program but no proof shows it."""
        by_intent = "program" in self.case.accept.not_applicable or not self.on_one_mesh
        return not by_intent and self.rung is Verdict.UNPROVED


def _infer(evidence: Evidence) -> WeightMap | MapError:
    """Returns the inferred map or its error; reads programs only if leaves are ambiguous, or have no partner.

    If the pair names a method, leaves that it does not use may lack a partner.
    """
    whole = _infer_among(evidence, (set(), set()))
    if not isinstance(whole, MapError) or not any(build.method for build in evidence.builds):
        return whole
    unused = _unpaired_unused(evidence.of_program(FORWARD).sides)
    found = _infer_among(evidence, unused) if any(unused) else whole
    if isinstance(found, MapError):
        return found
    left, right = (tuple(sorted({*paths, *more})) for paths, more in zip(found.alone, unused, strict=True))
    return dataclasses.replace(found, alone=(left, right))


def _infer_among(evidence: Evidence, without: tuple[set[str], set[str]]) -> WeightMap | MapError:
    reference, candidate = (
        {path: leaf for path, leaf in build.leaves.items() if path not in gone}
        for build, gone in zip(evidence.builds, without, strict=True)
    )

    try:
        programs = Programs(
            use=functools.partial(_of_programs, evidence, state_fingerprints),
            order=functools.partial(_order, evidence),
            near=functools.partial(evidence.read, _near),
            feeding=functools.partial(evidence.read, _feeding),
        )
        return infer(reference, candidate, evidence.case.rules, programs)
    except MapError as error:
        return error


def _unused(side: Side) -> set[str]:
    """Returns the leaves on which no result of a forward program depends, with the moments of parameters."""
    jaxpr, leaves = side.traced.jaxpr, side.build.leaves
    taken = set(map(id, jaxpr.jaxpr.invars))
    wanted = [
        at
        for at, ((group, _), result) in enumerate(zip(side.results, jaxpr.jaxpr.outvars, strict=True))
        if group != Group.STATE or id(result) not in taken
    ]
    needed = Demand(jaxpr, wanted, all_draws=False).inputs
    unread = {path for at, path in enumerate(side.state_paths) if at not in needed}
    own = {path for path in unread if leaves[path].role in (Role.PARAMS, Role.STATE)}
    owners = {normalise(path) for path in own if leaves[path].role is Role.PARAMS}
    moments = {
        path
        for path, leaf in leaves.items()
        if leaf.role is Role.OPTIMIZER and moment_of(normalise(path), owners)
    }
    return own | moments


def _unpaired_unused(sides: tuple[Side, Side]) -> tuple[set[str], set[str]]:
    """Returns the leaves of each side that its method does not use and whose name the other side lacks.

    Linen makes only the leaves that a method uses, NNX makes all.
    """
    names = [set(map(normalise, side.build.leaves)) for side in sides]
    left, right = (
        {path for path in (side.read(_unused) if side.build.method else ()) if normalise(path) not in names}
        for side, names in zip(sides, names[::-1], strict=True)
    )
    return left, right


def _order(evidence: Evidence) -> Order:
    """Returns the place of the first use of each leaf, in the program that uses the most leaves if it is used there."""
    orders = _of_programs(evidence, state_order).values()
    found: Order = {}, {}
    for pair in sorted(orders, key=lambda pair: -len(pair[0])):
        for held, ranks in zip(found, pair, strict=True):
            for path in sorted(ranks, key=ranks.__getitem__):
                held.setdefault(path, len(held))
    return found


def _near(evidence: Evidence) -> Paths:
    """Returns the operations that process each leaf, in the smallest program that uses the most parameters."""

    def rank(program: str) -> tuple[int, int]:
        roles = [evidence.builds[0].leaves[path].role for path in counted[program][0]]
        jaxpr = evidence.of_program(program).reference.traced.jaxpr
        return -roles.count(Role.PARAMS), len(jaxpr.eqns)

    counted = _of_programs(evidence, state_order)
    with contextlib.suppress(SideError):  # the program's own case reports it
        for program in sorted(counted, key=rank)[:1]:
            left, right = evidence.of_program(program).sides
            return left.read(state_operations), right.read(state_operations)
    return {}, {}


def _feeding(evidence: Evidence) -> Paths:
    """Returns the leaves on which each module's new parameters depend, in the first program that returns any."""
    found = (pair for pair in _of_programs(evidence, state_feeding).values() if all(pair))
    return next(found, ({}, {}))


def _of_programs(evidence: Evidence, reader: Callable[[Side], T]) -> dict[str, tuple[T, T]]:
    """Returns a reading of both sides of every program of the builds; skips programs that cannot be read."""
    left, right = evidence.builds
    found = {}
    for program in sorted(set(left.programs) & set(right.programs)):
        with contextlib.suppress(SideError):  # the program's own case reports it
            sides = evidence.of_program(program).sides
            found[program] = (sides[0].read(reader), sides[1].read(reader))
    return found
