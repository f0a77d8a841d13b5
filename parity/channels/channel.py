"""What a channel is: a name, what it looks at, what a proof settles of it, and how it judges."""

import dataclasses
import enum
from collections.abc import Callable

from parity.builds.build import Group
from parity.compare.comparison import Comparison
from parity.compare.one_program import compile_to_one
from parity.compare.sample import why_not_sampled
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["BY_RULES", "ONE_PROGRAM", "Aspect", "Channel", "Need", "Settled", "no_findings"]


ONE_PROGRAM = "one_program"
"""The measure that says that numbers are equal because both sides compile to one program."""
BY_RULES = "rules"
"""The measure that counts the rules of a proof that is not one operation by operation."""
NUMBERS = frozenset({Group.VALUES, Group.GRADIENTS, Group.STATE})


class Aspect(enum.StrEnum):
    """What of a case a channel looks at."""

    PROGRAM = "program"
    STATE = "state"
    VALUES = "values"
    STRUCTURE = "structure"
    CALLS = "calls"


class Need(enum.StrEnum):
    """The last phase that a channel asks for where nothing is proved."""

    TRACE = "trace"
    LOWER = "lower"
    COMPILE = "compile"
    RUN = "execute"


class Settled(enum.StrEnum):
    """What a proof that both sides are the same program leaves of a channel's question.

    A proof by rules says that values are equal, and settles channels of values alone.

    ``lowered``: it is answered. ``compiled``: it is answered, unless one came to look at compiled programs.
    ``nothing``: the channel looks all the same.
    """

    LOWERED = "lowered"
    COMPILED = "compiled"
    NOTHING = "nothing"


def no_findings(work: Comparison) -> list[Finding]:
    """Finds nothing: for channels whose question a proof answers whole."""
    return []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Channel:
    """One aspect of a case, compared.

    Args:
        name: as the report spells it.
        about: what it compares, in one line.
        column: head of the table's column; several channels may share one.
        aspect: what it looks at.
        needs: the last phase that it asks for where nothing is proved.
        judge: compares both sides.
        settled: what a proof leaves of its question.
        group: the outputs it compares; it is skipped where the program returns none of them.
        applies: why it has nothing to say about a case; empty where it has.
        guard: what must hold even of what is proved; a finding makes the check vacuous.
    """

    name: str
    about: str
    column: str
    aspect: Aspect
    needs: Need
    judge: Callable[[Comparison], ChannelResult]
    settled: Settled = Settled.NOTHING
    group: Group | None = None
    applies: Callable[[Comparison], str] = lambda work: ""
    guard: Callable[[Comparison], list[Finding]] = no_findings

    def look(self, work: Comparison) -> ChannelResult:
        """Returns the verdict on a case: skipped, settled by its proof, or judged."""
        result = self._look(work)
        settled = result.verdict in (Verdict.PROVED, Verdict.EXACT) or ONE_PROGRAM in result.measures
        if self.group in NUMBERS and settled and (why := why_not_sampled(work)):
            return dataclasses.replace(
                result, detail=f"{result.detail}; not run to look for NaN and constants: {why}"
            )
        return result

    def _look(self, work: Comparison) -> ChannelResult:
        reason = work.case.not_applicable.get(self.name) or self._none_returned(work) or self.applies(work)
        if reason:
            return self.skipped(reason)
        settled = self._is_settled(work)
        exact = not settled and self._is_exact(work)
        one = not (settled or exact) and self._is_one_program(work)
        if not (settled or exact or one):
            return self.judge(work)
        if guards := self.guard(work):
            return self.vacuous(guards)
        if one:
            words = f"equal for all inputs: both compile to one program on {work.reference.backend.name}"
            return ChannelResult(
                name=self.name, verdict=Verdict.BITWISE, detail=words, measures={ONE_PROGRAM: 1}
            )
        if exact:
            return ChannelResult(name=self.name, verdict=Verdict.EXACT, detail=_exactly(work))
        words = "equal for all inputs" if self.aspect is Aspect.VALUES else "the same program"
        measures = {}
        if work.proof is not None and work.proof.rules:
            words = f"{words}, each operation rounding by itself (rules: {', '.join(work.proof.rules)})"
            measures = {BY_RULES: len(work.proof.rules)}
        return ChannelResult(name=self.name, verdict=Verdict.PROVED, detail=words, measures=measures)

    def skipped(self, reason: str) -> ChannelResult:
        """Returns that there is no question, and why."""
        return ChannelResult(name=self.name, verdict=Verdict.SKIPPED, detail=reason)

    def vacuous(self, findings: list[Finding]) -> ChannelResult:
        """Returns that the check cannot fail, and why."""
        detail = "a check that cannot fail"
        return ChannelResult(name=self.name, verdict=Verdict.VACUOUS, detail=detail, findings=tuple(findings))

    def _none_returned(self, work: Comparison) -> str:
        sides = (work.reference, work.candidate) if self.group else ()
        returned = not sides or any(self.group in side.traced.out_info for side in sides)
        return "" if returned else f"{work.case.program} returns none"

    def _is_exact(self, work: Comparison) -> bool:
        """Whether what the channel compares is equal in exact arithmetic, and the case rests on that."""
        return self.group in NUMBERS and work.exactly is not None and work.exactly.proved

    def _is_one_program(self, work: Comparison) -> bool:
        """Whether what the channel compares is equal to the bit because the compiler makes one program of both."""
        if self.group is None or work.must_run:  # before `numbers`, which asks for the proof
            return False
        return work.numbers.met_by(Verdict.BITWISE) and compile_to_one(work)

    def _is_settled(self, work: Comparison) -> bool:
        if self.settled is Settled.NOTHING:
            return False
        if self.settled is Settled.COMPILED:
            return work.proof_covers_compiled
        return work.settled and (work.same_program or self.aspect is Aspect.VALUES)


def _exactly(work: Comparison) -> str:
    assert work.exactly is not None
    assumed = f", if {'; '.join(work.exactly.assumptions)}" if work.exactly.assumptions else ""
    return f"equal for all inputs in exact arithmetic{assumed}; rounding aside"
