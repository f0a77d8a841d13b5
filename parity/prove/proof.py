"""Proves that two lowered programs are the same program, or reports where they first differ."""

import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from parity.ir.stablehlo.program import StableProgram
from parity.ir.stablehlo.reader import read_program
from parity.prove.exchange import Exchange
from parity.prove.frontier import MOST_ENTRIES, Frontier, attribute_differences
from parity.prove.grade import SETTING, grade, has_other_constant, is_setting
from parity.prove.numbering import Numbering, Table, number_program
from parity.prove.rules import EXACT, LOOSE, RuledNumbering, Terms, shared_alike
from parity.prove.rules.weight_views import WeightView, given, not_met
from parity.verdicts import SIDES, Finding, Verdict, repeated

_DONATION = ("jax.buffer_donor", "tf.aliasing_output")
_MAX_TRIED = 20_000
"""Largest program, in operations, for which the prover determines the rules that a proof needs."""
_Pairs = Sequence[tuple[int, int]]
_Positions = tuple[tuple[int, ...], tuple[int, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnpairedPositions:
    """Positions in ``@main`` without a partner on the other side, for the reference and the candidate.

    Args:
        arguments, results: the positions.
        counters: number of them that are counters of both sides that `parity.prove.counters` found equal.
        moved_arguments, moved_results: groups with another layout on one side; only rules can match them.
    """

    arguments: _Positions = ((), ())
    results: _Positions = ((), ())
    counters: int = 0
    moved_arguments: tuple[WeightView, ...] = ()
    moved_results: tuple[WeightView, ...] = ()


NO_UNPAIRED = UnpairedPositions()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proof:
    """Result of the prover.

    Args:
        proved: True if both programs are the same program.
        reordered: True if they are the same up to the order of operands of float additions, products, minima and
            maxima, and up to rules under which compiled code may round differently.
        operations: number of operations numbered on each side, including loop rounds, unless both are one.
        seconds: time for reading, numbering and comparing.
        frontier: the first differences, empty if proved.
        unequal_results: positions in ``results`` whose values were not shown equal.
        alone: number of results of each side that have no partner and were left out.
        counters: number of results left out because both sides count them up by the same number in two integer types.
        rules: number of uses of each rule, if the rung needs rules; else empty.
    """

    proved: bool
    operations: tuple[int, int]
    seconds: float
    frontier: tuple[Frontier, ...] = ()
    unequal_results: tuple[int, ...] = ()
    reordered: bool = False
    alone: tuple[int, int] = (0, 0)
    counters: int = 0
    rules: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def rung(self) -> Verdict:
        """The rung of the ladder that the programs reach: proved, reordered, or unproved."""
        if self.proved:
            return Verdict.PROVED
        return Verdict.REORDERED if self.reordered else Verdict.UNPROVED

    @property
    def same_program(self) -> bool:
        """True if both are one program operation by operation; a proof by rules shows only equal values."""
        return self.proved and not self.rules

    def findings(self) -> tuple[Finding, ...]:
        """Returns the frontier as findings, each once."""
        return tuple(dict.fromkeys(map(_finding, self.frontier)))

    def reasons(self) -> dict[Finding, str]:
        """Returns the findings that may not rest on numbers, with the reasons."""
        return {entry.finding(): reason for entry in self.frontier if (reason := grade(entry))}

    def outcome(self) -> str:
        """Returns the outcome as text."""
        scope = ""
        if self.counters:
            some = f"{self.counters} counter{'s' * (self.counters > 1)}"
            scope += f" but for {some} that both sides count up alike, in other integers"
        if any(self.alone):
            scope += f" but for {self.alone[0]} and {self.alone[1]} results that one side has alone"
        rules = f"rules: {', '.join(self.rules)}" if self.rules else ""
        if self.proved:
            counts = f"{self.operations[0]} and {self.operations[1]} operations"
            return (
                f"the same values{scope} ({rules}; {counts})"
                if rules
                else f"the same program{scope} ({counts})"
            )
        if self.reordered and rules:
            return f"the same values{scope} but for what compiled code rounds otherwise ({rules})"
        if self.reordered:
            return f"the same program{scope} up to the order of operands of float operations"
        count = len(self.unequal_results)
        results = f": {count} result{'s' * (count != 1)} not shown equal" if count else ""
        most = "at least " if len(self.frontier) >= MOST_ENTRIES else ""
        places = f"; {most}{len(self.frontier)} places differ" if len(self.frontier) > 1 else ""
        return f"not shown to be the same program{scope}{results}{places}"


def prove(  # noqa: PLR0913 - all but the programs by keyword
    reference: Any,
    candidate: Any,
    *,
    arguments: _Pairs,
    results: _Pairs,
    alone: UnpairedPositions = NO_UNPAIRED,
    ignore_shardings: bool = False,
    unproved: Callable[[], object] = lambda: None,
) -> Proof:
    """Compares two lowered programs operation by operation, for all inputs; ``docs/soundness.md`` defines the claim.

    Args:
        reference: a ``jax.stages.Lowered``, an MLIR module, or the result of ``read_program`` for either.
        candidate: the same.
        arguments: pairs of positions in ``@main`` (reference, candidate). ``jit`` drops unused arguments;
            ``parity.ir.jax_internals.main_position`` gives the positions of the remaining ones.
        results: pairs of result positions.
        alone: arguments and results of one side only. Such an argument equals no other; such a result, and the
            operations that only it needs, are not compared.
        ignore_shardings: True to leave sharding annotations out of the comparison.
        unproved: called as soon as neither the strict proof nor one by rules can succeed.

    Returns:
        The proof, or the frontier.

    Raises:
        ValueError: if the pairs are not total and one-to-one, or a module cannot be read.
    """
    started = time.perf_counter()
    sides = (
        read_program(reference, ignore_shardings=ignore_shardings, without=alone.results[0]),
        read_program(candidate, ignore_shardings=ignore_shardings, without=alone.results[1]),
    )
    entries = _paired(sides, arguments, results, alone)
    in_place = alone == NO_UNPAIRED and all(left == right for left, right in (*arguments, *results))
    if sides[0] is sides[1] and in_place:  # it equals itself, without numbers
        size, took = sides[0].size, time.perf_counter() - started
        return Proof(proved=True, operations=(size, size), seconds=took)
    attempt = functools.partial(_Attempt, sides, arguments, results, alone)
    reported = strict = attempt()
    by_rules, ruled, loose = False, None, None
    if not strict.equal and not entries:
        reported = loose = attempt(rules=LOOSE, reorder=True)  # its rules include the exact ones
        if loose.equal:
            ruled = attempt(rules=EXACT)
            by_rules = ruled.equal and shared_alike(strict.numberings, ruled.numberings)  # pyright: ignore
            # A difference that the order of operands explains is reported only if there is no other.
            reported = ruled if by_rules or not ruled.equal else strict
    if entries or not (strict.equal or by_rules):
        unproved()
    used: dict[str, int] = {}
    reordered = ruled is not None and not by_rules
    if ruled is not None and loose is not None:
        used = _needed(loose if reordered else ruled, functools.partial(attempt, reorder=reordered))
        reported = reported if used else strict
    # A proof that is not strict has to name its rules; without a name it would count as a strict proof.
    proved = not entries and (strict.equal or (by_rules and bool(used)))
    entries += [] if reported.equal else reported.search()
    entries.sort(key=lambda entry: (not grade(entry), not has_other_constant(entry)))
    return Proof(
        proved=proved,
        reordered=reordered,
        rules=used,
        operations=strict.visited,
        seconds=time.perf_counter() - started,
        frontier=tuple(entries),
        unequal_results=tuple(reported.unequal),
        alone=(len(alone.results[0]) - alone.counters, len(alone.results[1]) - alone.counters),
        counters=alone.counters,
    )


def is_one_program(
    reference: StableProgram,
    candidate: StableProgram,
    *,
    arguments: _Pairs,
    results: _Pairs,
    alone: UnpairedPositions = NO_UNPAIRED,
) -> bool:
    """True if two programs that are already read are one program, as in `Proof.same_program`; tries no rules."""
    pair = ((reference, candidate), arguments, results, alone)
    return not _paired(*pair) and _Attempt(*pair).equal


def _finding(entry: Frontier) -> Finding:
    found = entry.finding()
    return dataclasses.replace(found, cause=SETTING) if is_setting(entry) else found


def _paired(
    sides: tuple[StableProgram, StableProgram], arguments: _Pairs, results: _Pairs, alone: UnpairedPositions
) -> list[Frontier]:
    """Returns the differences outside operations, after checking that all arguments and results are paired.

    Raises:
        ValueError: if they are not paired one to one.
    """
    _check_hoisted(sides, arguments)
    given = [
        {place: name for place, name in enumerate(side.argument_names) if place not in side.constants}
        for side in sides
    ]
    returned = [dict(enumerate(side.result_names)) for side in sides]
    for label, pairs, names, own, moved in (
        ("arguments", arguments, given, alone.arguments, alone.moved_arguments),
        ("results", results, returned, alone.results, alone.moved_results),
    ):
        others = [[*own[side], *(at for move in moved for at in move.positions(side))] for side in (0, 1)]
        check_pairs(label, pairs, names, others)
    return _side_differences(*sides, arguments, results)


class _Attempt:
    """Both programs numbered in one table.

    Args:
        sides, arguments, results, alone: as for `prove`.
        rules: names of the rules that may be used; None for the strict proof.
        reorder: as for `Numbering`.
    """

    def __init__(
        self,
        sides: tuple[StableProgram, StableProgram],
        arguments: _Pairs,
        results: _Pairs,
        alone: UnpairedPositions,
        *,
        rules: Collection[str] | None = None,
        reorder: bool = False,
    ):
        self._results = results
        self.table = Table() if rules is None else Terms(rules)
        moved = given(self.table, sides, alone.moved_arguments)
        inputs = [self.table.number(f"#argument {position}") for position in range(len(arguments))]
        known = [
            {pair[side]: number for number, pair in zip(inputs, arguments, strict=True)}
            | {at: self.table.number(f"#argument {at} of side {side} alone") for at in alone.arguments[side]}
            | moved[side]
            for side in (0, 1)
        ]
        kind = Numbering if rules is None else RuledNumbering
        number = functools.partial(number_program, table=self.table, kind=kind, reorder=reorder)
        left, right = self.numberings = [
            number(side, arguments=numbers) for side, numbers in zip(sides, known, strict=True)
        ]
        self.visited = (left.visited, right.visited)  # the search numbers again and increases the counts
        ends = left.ends(), right.ends()
        self.unequal = [at for at, (one, other) in enumerate(results) if ends[0][one] != ends[1][other]]
        self.missed = not_met(self.numberings, alone.moved_results)
        self.equal = not self.unequal and not self.missed and left.effects == right.effects

    def search(self) -> list[Frontier]:
        """Returns the first differences."""
        found = []
        if self.unequal or not self.missed:
            found = Exchange(self.numberings, self._results).run(self.unequal)
        return [*found, *self.missed]


def _needed(found: _Attempt, attempt: Callable[..., _Attempt]) -> dict[str, int]:
    """Returns the rules that a proof needs, with their numbers of uses; for a large program, all that it used."""
    for rule in found.table.used if sum(found.visited) <= _MAX_TRIED else ():
        fewer = attempt(rules=found.table.enabled - {rule})
        found = fewer if fewer.equal else found
    return dict(found.table.used)


def _check_hoisted(sides: Sequence[StableProgram], arguments: _Pairs) -> None:
    """Checks that no pair names a hoisted constant; these are compared by their bytes."""
    for side, label in enumerate(SIDES):
        paired = sorted({pair[side] for pair in arguments} & set(sides[side].constants))
        if paired:
            raise ValueError(
                f"arguments: got {label} positions {paired}, which are constants that JAX hoisted, expected "
                "positions of the function's arguments; parity.ir.jax_internals.main_position has them"
            )


def check_pairs(
    what: str, pairs: _Pairs, names: Sequence[Mapping[int, str]], alone: Sequence[Sequence[int]]
) -> None:
    """Checks that pairs of positions, and the positions of one side only, are total and one-to-one.

    Raises:
        ValueError: naming every position that is out of range, used twice or left over.
    """
    problems = []
    for side, label in enumerate(SIDES):
        used = [*(pair[side] for pair in pairs), *alone[side]]
        outside = sorted(set(used) - set(names[side]))
        twice = sorted(repeated(used))
        left = [f"{position} ({names[side][position]})" for position in sorted(set(names[side]) - set(used))]
        problems += [f"{label} positions out of range: {outside}"] if outside else []
        problems += [f"{label} positions used twice: {twice}"] if twice else []
        problems += [f"{label} left over: {', '.join(left)}"] if left else []
    if problems:
        raise ValueError(f"{what}: expected pairs that are total and one-to-one, got {'; '.join(problems)}")


def _side_differences(
    reference: StableProgram, candidate: StableProgram, arguments: _Pairs, results: _Pairs
) -> list[Frontier]:
    """Returns differences in attributes of the modules, and in types and attributes of paired arguments and results."""
    pairs = [("module", reference.module, candidate.module)]
    for left, right in arguments:
        one = {"type": reference.body.types[left], **_donation(reference.arguments[left])}
        other = {"type": candidate.body.types[right], **_donation(candidate.arguments[right])}
        name = " / ".join(dict.fromkeys((reference.argument_names[left], candidate.argument_names[right])))
        pairs.append((f"argument {name}", one, other))
    for left, right in results:
        name = " / ".join(dict.fromkeys((reference.result_names[left], candidate.result_names[right])))
        pairs.append((f"result {name}", reference.results[left], candidate.results[right]))
    return [
        Frontier(where=where, differences=attribute_differences(one, other))
        for where, one, other in pairs
        if one != other
    ]


def _donation(attributes: dict[str, str]) -> dict[str, str]:
    """Replaces donation attributes by a donation flag; XLA chooses which result takes the argument's memory."""
    kept = {name: text for name, text in attributes.items() if name not in _DONATION}
    return {**kept, "donated": str(any(name in attributes for name in _DONATION)).lower()}
