"""What a channel is: a name, what it looks at, what a proof settles of it, and how it judges."""

import dataclasses
import enum
from collections.abc import Callable

from parity.builds.build import Group
from parity.compare.evidence import Evidence
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


def no_findings(evidence: Evidence) -> list[Finding]:
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
    judge: Callable[[Evidence], ChannelResult]
    settled: Settled = Settled.NOTHING
    group: Group | None = None
    applies: Callable[[Evidence], str] = lambda evidence: ""
    guard: Callable[[Evidence], list[Finding]] = no_findings

    def look(self, evidence: Evidence) -> ChannelResult:
        """Returns the verdict on a case: skipped, settled without running, or judged."""
        if reason := self._no_question(evidence):
            return self.skipped(reason)
        settled = self._settled(evidence)
        if settled is None:
            return self.judge(evidence)
        if guards := self.guard(evidence):
            return self.vacuous(guards)
        if self.group in NUMBERS and (why := why_not_sampled(evidence)):
            detail = f"{settled.detail}; not run to look for NaN and constants: {why}"
            return dataclasses.replace(settled, detail=detail)
        return settled

    def skipped(self, reason: str) -> ChannelResult:
        """Returns that there is no question, and why."""
        return ChannelResult(name=self.name, verdict=Verdict.SKIPPED, detail=reason)

    def vacuous(self, findings: list[Finding]) -> ChannelResult:
        """Returns that the check cannot fail, and why."""
        detail = "a check that cannot fail"
        return ChannelResult(name=self.name, verdict=Verdict.VACUOUS, detail=detail, findings=tuple(findings))

    def _no_question(self, evidence: Evidence) -> str:
        """Returns why the case has no question for this channel; empty if it has one."""
        if reason := evidence.case.accept.not_applicable.get(self.name):
            return reason
        if self.group and not any(self.group in side.traced.out_info for side in evidence.sides):
            return f"{evidence.case.program} returns none"
        return self.applies(evidence)

    def _settled(self, evidence: Evidence) -> ChannelResult | None:
        """Returns the verdict if a proof, or the compiler, settles the question; None to judge."""
        if self._is_proved(evidence):
            return self._proved(evidence)
        if self.group in NUMBERS and (exact := evidence.accepted_exact_proof) is not None and exact.proved:
            assumed = f", if {'; '.join(exact.assumptions)}" if exact.assumptions else ""
            words = f"equal for all inputs in exact arithmetic{assumed}; rounding aside"
            return ChannelResult(name=self.name, verdict=Verdict.EXACT, detail=words)
        if self._is_one_program(evidence):
            backend = evidence.reference.backend.name
            words = f"equal for all inputs: both compile to one program on {backend}"
            measures = {ONE_PROGRAM: 1}
            return ChannelResult(name=self.name, verdict=Verdict.BITWISE, detail=words, measures=measures)
        return None

    def _is_proved(self, evidence: Evidence) -> bool:
        if self.settled is Settled.NOTHING:
            return False
        if self.settled is Settled.COMPILED:
            return evidence.proof_covers_compiled
        return evidence.settled and (evidence.same_program or self.aspect is Aspect.VALUES)

    def _is_one_program(self, evidence: Evidence) -> bool:
        """Returns True if numbers are equal to the bit because the compiler makes one program of both."""
        if self.group is None or evidence.must_run:  # before the requirement, which needs the proof
            return False
        return evidence.required_of_numbers.met_by(Verdict.BITWISE) and evidence.read(compile_to_one)

    def _proved(self, evidence: Evidence) -> ChannelResult:
        words = "equal for all inputs" if self.aspect is Aspect.VALUES else "the same program"
        rules = evidence.proof.rules if evidence.proof is not None else {}
        if rules:
            words = f"{words}, each operation rounding by itself (rules: {', '.join(rules)})"
        measures = {BY_RULES: len(rules)} if rules else {}
        return ChannelResult(name=self.name, verdict=Verdict.PROVED, detail=words, measures=measures)
