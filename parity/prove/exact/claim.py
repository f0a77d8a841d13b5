"""Claim that two programs compute the same functions of their inputs in exact real arithmetic."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.ir.stablehlo.functions import Functions
from parity.prove.exact.algebra import Algebra
from parity.prove.exact.contents import Contents, WalkedFunctions
from parity.prove.exact.explain import definitions, explain, where
from parity.prove.exact.interpreter import REALS, Arithmetic, Interpreter
from parity.prove.exact.relation import Link, Relation, atom, carry, splits
from parity.prove.exact.tensors import Tensor, Tensors, common
from parity.prove.exact.terms import RefusalError, Terms

__all__ = ["Equality", "Named", "ProofCache", "equal"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Named:
    """A lowered program whose arguments and results have names.

    Args:
        program: a ``jax.stages.Lowered`` or an MLIR module.
        arguments, results: names by position in ``@main``.
    """

    program: Any
    arguments: Sequence[str]
    results: Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Equality:
    """Result of a claim that two programs are equal in exact real arithmetic.

    Args:
        proved: True if they are equal under ``assumptions``.
        assumptions: conditions on the inputs, as text.
        difference: the first results that differ, and the innermost differing terms, as text; empty if proved or
            refused.
        refusal: the part that was not understood; empty if none.
        terms, cells, steps: size of the proof.
        sides: operations that were walked on each side.
        turned: loop iterations that were walked.
        seconds: duration.
    """

    proved: bool
    assumptions: tuple[str, ...] = ()
    difference: str = ""
    refusal: str = ""
    terms: int = 0
    cells: int = 0
    steps: int = 0
    sides: tuple[int, int] = (0, 0)
    turned: int = 0
    seconds: float = 0.0


class _Side:
    """One program, walked.

    Args:
        named: the program.
        algebra: shared with the other side.
        cache: shared tensors, contents and limits; None to use separate ones.
    """

    def __init__(self, named: Named, algebra: Algebra, cache: "ProofCache | None" = None):
        arithmetic = cache.arithmetic if cache else REALS
        tensors, contents = (cache.tensors, cache.contents) if cache else (None, None)
        most_steps = cache.most_steps if cache else MOST_STEPS
        self.named = named
        functions = _read(named.program)
        with functions.module.context:
            walked = WalkedFunctions(functions, contents or Contents(), arithmetic.sort_of)
            main = functions["main"].operation
            types = [argument.type for argument in main.regions[0].blocks[0].arguments]
            if len(types) != len(named.arguments):
                raise RefusalError(
                    f"got {len(types)} arguments of @main, expected {len(named.arguments)} with names"
                )
            self.types = {
                name: (tuple(each.shape), arithmetic.sort_of(str(each.element_type)))
                for name, each in zip(named.arguments, types, strict=True)
            }
        self._context = functions.module.context
        self.interpreter = Interpreter(walked, algebra, most_steps, tensors, arithmetic.handlers)

    def walk(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the results by name."""
        origins = self.interpreter.terms.origins
        before = len(origins)
        with self._context:
            try:
                results = self.interpreter.main([given[name] for name in self.named.arguments])
            finally:
                for origin in origins[before:]:
                    _ = origin and origin.step.place  # the module may be gone when a later claim reads it
        return dict(zip(self.named.results, results, strict=True))


def _read(program: Any) -> Functions:
    """Returns the functions of a program, after reading all that it calls.

    Raises:
        RefusalError: it has recursion or unstructured control flow.
    """
    functions = Functions(program, ignore_shardings=True)
    try:
        _ = functions["main"]
    except ValueError as error:
        raise RefusalError(str(error)) from error
    return functions


MOST_STEPS = 100_000_000
KEPT_SIDES = 8
"""Number of programs that are kept after reading."""


class ProofCache:
    """Shared state of consecutive claims: terms, and the results of each piece of a program by its operands.

    The keys do not depend on names: inputs are numbered, and programs are identified by their content. Therefore twins
    with other names, and one sequence compared with many schedules, are walked once.

    Args:
        most: number of terms that are kept for the next claim.
        most_steps: limit of operations to walk; beyond it, the claim is refused.
        arithmetic: semantics of the operations.
    """

    def __init__(self, most: int = 300_000, most_steps: int = MOST_STEPS, arithmetic: Arithmetic = REALS):
        self._most, self.most_steps, self.arithmetic = most, most_steps, arithmetic
        self._clear()

    def _clear(self) -> None:
        self.algebra = self.arithmetic.algebra(Terms())
        self.tensors, self.contents = Tensors(self.algebra), Contents()
        self.definedness = self.algebra.definedness
        self._sides: dict[tuple, _Side] = {}
        self._claimed: tuple[Relation, tuple, tuple] | None = None

    def begin(self, reference: Named, candidate: Named, relation: Relation) -> None:
        """Prepares the cache for a claim.

        Known ranges apply to numbered inputs, so they are valid only for the same relation. If the previous claim
        required assumptions, the cache is cleared: a claim that reuses results based on them would not list them.
        """
        claimed = (relation, tuple(reference.arguments), tuple(candidate.arguments))
        same = (
            self._claimed is not None and claimed[0] is self._claimed[0] and claimed[1:] == self._claimed[1:]
        )
        if not same and (relation.ranges or self.algebra.tables.ranges):
            self._clear()
        self._claimed = claimed
        terms = self.algebra.terms
        assumed = self.algebra.thresholds or self.definedness.all_undefined(self.algebra.assumed)
        if assumed or len(terms.nodes) > self._most:
            self._clear()
        self.algebra.assumed.clear()
        self.algebra.terms.rename()

    def side(self, named: Named) -> _Side:
        """Returns a program, which is read once."""
        key = (id(named.program), tuple(named.arguments), tuple(named.results))
        if key not in self._sides:
            if len(self._sides) == KEPT_SIDES:
                del self._sides[next(iter(self._sides))]
            self._sides[key] = _Side(named, self.algebra, self)
        return self._sides[key]


def equal(
    reference: Named, candidate: Named, relation: Relation, cache: ProofCache | None = None
) -> Equality:
    """Decides whether two programs are equal; a program that is not understood is never called equal.

    Args:
        reference, candidate: the programs.
        relation: arguments and results that correspond.
        cache: shared with other claims.
    """
    start = time.perf_counter()
    cache = cache or ProofCache()
    cache.begin(reference, candidate, relation)
    algebra = cache.algebra
    terms = algebra.terms
    sides: list[_Side] = []

    def ended(**fields: Any) -> Equality:
        walked = [*(side.interpreter.steps for side in sides), 0, 0]
        return Equality(
            **fields,
            terms=len(terms.nodes),
            cells=terms.cells,
            steps=sum(walked),
            sides=(walked[0], walked[1]),
            turned=sum(side.interpreter.turned for side in sides),
            seconds=time.perf_counter() - start,
        )

    try:
        sides += [cache.side(each) for each in (reference, candidate)]
        inputs = _inputs(sides, relation, cache.tensors)
        results = [side.walk(given) for side, given in zip(sides, inputs, strict=True)]
        difference = _first_difference(cache.tensors, results, relation)
    except RefusalError as error:
        return ended(proved=False, refusal=where(error))
    if difference:
        return ended(proved=False, difference=difference)
    within = [f"{name} is in [{low}, {high})" for name, (low, high) in sorted(relation.ranges.items())]
    defined = definitions(terms, cache.definedness.all_undefined(algebra.assumed))
    return ended(proved=True, assumptions=(*within, *defined, *sorted(algebra.thresholds)))


def _inputs(
    sides: Sequence[_Side], relation: Relation, tensors: Tensors
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns the arguments of both sides, made from the same terms."""
    given: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    for link in relation.arguments:
        back = splits(link.transform)
        names = (link.reference, link.candidate)
        left, right = names[::-1] if back else names
        types = sides[1 if back else 0].types
        others = sides[0 if back else 1].types
        if not any(name in types for name in left):
            known = [name for name in right if name in others]
            if known and type(link.transform).__name__ == "Identity":
                types = others
            elif known:
                raise RefusalError(f"arguments: {known} are read by one side only, expected {left} too")
            else:
                continue
        kinds = _kinds(left, types, link)
        split_axes = () if back else relation.split_axes.get(left[0], ())
        whose = "candidate's " if back else ""  # names of both sides may be equal
        atoms = [
            atom(tensors, whose + name, *kind, split_axes) for name, kind in zip(left, kinds, strict=True)
        ]
        if not back and left[0] in relation.ranges:
            tensors.algebra.tables.limit(atoms[0].cells.ravel().tolist(), relation.ranges[left[0]])
        carried = carry(tensors, link.transform, atoms, back=back)
        found = (dict(zip(left, atoms, strict=True)), dict(zip(right, carried, strict=True)))
        for side, each in zip(given, found[::-1] if back else found, strict=True):
            if again := sorted(set(side) & set(each)):
                raise RefusalError(f"arguments: got two links for {again}")
            side.update(each)
    for side, known in zip(sides, given, strict=True):
        missing = [name for name in side.types if name not in known]
        wrong = [
            name
            for name, kind in side.types.items()
            if name in known and (known[name].shape, known[name].sort) != kind
        ]
        if missing or wrong:
            raise RefusalError(f"arguments: no link gives {missing or wrong} with its type")
    return given


def _kinds(names: Sequence[str], types: Mapping[str, Any], link: Link) -> list[tuple[tuple[int, ...], str]]:
    """Returns shape and sort of each name; a part that the program does not read has the length in the weight map."""
    shape, sort = next(types[name] for name in names if name in types)
    sizes = getattr(link.transform, "sizes", None)
    found = []
    for place, name in enumerate(names):
        own = list(shape)
        if sizes is not None:
            own[link.transform.axis % len(shape)] = sizes[place]
        found.append(types.get(name, (tuple(own), sort)))
    return found


def _first_difference(tensors: Tensors, results: Sequence[Mapping[str, Tensor]], relation: Relation) -> str:
    reference, candidate = results
    linked = [{name for link in relation.results for name in link.reference}]
    linked.append({name for link in relation.results for name in link.candidate})
    for known, names in zip(results, linked, strict=True):
        if set(known) != names:
            raise RefusalError(f"results: no link for {sorted(set(known) ^ names)}")
    for link in relation.results:
        carried = carry(tensors, link.transform, [reference[name] for name in link.reference])
        for name, left in zip(link.candidate, carried, strict=True):
            right = candidate[name]
            if left.shape != right.shape or left.sort != right.sort:
                return f"{name}: {left.sort}{list(left.shape)} against {right.sort}{list(right.shape)}"
            pair = common([x.cells for x in tensors.aligned([left, right])])
            unlike = np.argwhere(pair[0] != pair[1])
            if len(unlike):
                place = tuple(unlike[0])
                count = f"{len(unlike)} of {pair[0].size} cells differ"
                return f"{name}{list(map(int, place))}: {count}\n" + explain(
                    tensors.terms, pair[0][place].item(), pair[1][place].item()
                )
    return ""
