"""A channel: its name and aspect, the verdicts that a proof settles, and its comparison."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

from parity.builds.build import Group
from parity.channels.results import vacuous
from parity.compare.evidence import Evidence
from parity.compare.one_program import compile_to_one
from parity.compare.sample import why_not_sampled
from parity.verdicts import ChannelResult, Finding, Verdict

ONE_PROGRAM = "one_program"
"""The measure set if numbers are equal because both sides compile to one program."""
BY_RULES = "rules"
"""The measure that counts the rules of a proof that is not operation by operation."""
NUMBERS = (Group.VALUES, Group.GRADIENTS, Group.STATE)


class Aspect(enum.StrEnum):
    """The aspect of a case that a channel compares."""

    PROGRAM = "program"
    STATE = "state"
    VALUES = "values"
    STRUCTURE = "structure"
    CALLS = "calls"


class SettledByProof(enum.StrEnum):
    """The cases in which a proof that both sides are the same program settles a channel, which then compares nothing.

    A proof by rules shows that values are equal, and settles channels of values only.
    """

    ALWAYS = "yes"
    UNLESS_INSPECTED = "unless one came for compiled programs"
    NEVER = "no"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Channel:
    """A comparison of one aspect of a case.

    Args:
        judge: compares both sides; the channel has the name of this function, which its docstring describes.
        column: head of the table's column; several channels may share one.
        settled_by_proof: the cases in which a proof settles it.
        group: the outputs it compares; it is skipped if the program returns none of them.
        applies: returns why it does not apply to a case; empty if it applies.
        guard: finds why the check cannot fail, for proved cases too; a finding makes the check vacuous.
    """

    judge: Callable[[Evidence], ChannelResult]
    column: str
    aspect: Aspect
    settled_by_proof: SettledByProof = SettledByProof.NEVER
    group: Group | None = None
    applies: Callable[[Evidence], str] = lambda evidence: ""
    guard: Callable[[Evidence], list[Finding]] = lambda evidence: []

    @property
    def name(self) -> str:
        """The name in reports and options."""
        return self.judge.__name__

    @property
    def about(self) -> str:
        """The first line of the judge's docstring."""
        return (self.judge.__doc__ or "").partition("\n")[0]

    def look(self, evidence: Evidence) -> ChannelResult:
        """Returns the verdict on a case, named: skipped, settled without running, or judged."""
        return dataclasses.replace(self._verdict(evidence), name=self.name)

    def _verdict(self, evidence: Evidence) -> ChannelResult:
        if reason := self._inapplicable(evidence):
            return self.skipped(reason)
        settled = self._settled(evidence)
        if settled is None:
            return self.judge(evidence)
        if guards := self.guard(evidence):
            return vacuous(guards)
        if self.group in NUMBERS and (why := why_not_sampled(evidence)):
            detail = f"{settled.detail}; not run to look for NaN and constants: {why}"
            return dataclasses.replace(settled, detail=detail)
        return settled

    def skipped(self, reason: str) -> ChannelResult:
        """Returns the verdict ``skipped``, with the reason."""
        return ChannelResult(name=self.name, verdict=Verdict.SKIPPED, detail=reason)

    def _inapplicable(self, evidence: Evidence) -> str:
        """Returns why the channel does not apply to the case; empty if it applies."""
        if reason := evidence.case.accept.not_applicable.get(self.name):
            return reason
        if self.group and not any(self.group in side.traced.out_info for side in evidence.sides):
            return f"{evidence.case.program} returns none"
        return self.applies(evidence)

    def _settled(self, evidence: Evidence) -> ChannelResult | None:
        """Returns the verdict if a proof or the compiler settles it; None if the channel must compare."""
        if self._is_proved(evidence):
            return self._proved(evidence)
        if self.group in NUMBERS and (exact := evidence.accepted_exact_proof) is not None and exact.proved:
            assumed = f", if {'; '.join(exact.assumptions)}" if exact.assumptions else ""
            words = f"equal for all inputs in exact arithmetic{assumed}; rounding aside"
            return ChannelResult(verdict=Verdict.EXACT, detail=words)
        if self._compiles_to_one(evidence):
            backend = evidence.reference.backend.name
            words = f"equal for all inputs: both compile to one program on {backend}"
            return ChannelResult(verdict=Verdict.BITWISE, detail=words, measures={ONE_PROGRAM: 1})
        return None

    def _is_proved(self, evidence: Evidence) -> bool:
        if self.settled_by_proof is SettledByProof.NEVER:
            return False
        if self.settled_by_proof is SettledByProof.UNLESS_INSPECTED:
            return evidence.proof_covers_compiled
        return evidence.proof_covers_values and (evidence.same_program or self.aspect is Aspect.VALUES)

    def _compiles_to_one(self, evidence: Evidence) -> bool:
        """Returns True if numbers are bitwise equal because the compiler makes one program of both sides."""
        if self.group is None or evidence.must_run:  # before the requirement, which needs the proof
            return False
        return evidence.required_of_numbers.met_by(Verdict.BITWISE) and evidence.read(compile_to_one)

    def _proved(self, evidence: Evidence) -> ChannelResult:
        words = "equal for all inputs" if self.aspect is Aspect.VALUES else "the same program"
        rules = evidence.proof.rules if evidence.proof is not None else {}
        if rules:
            words = f"{words}, each operation rounding by itself (rules: {', '.join(rules)})"
        measures = {BY_RULES: len(rules)} if rules else {}
        return ChannelResult(verdict=Verdict.PROVED, detail=words, measures=measures)


def channel(**options: Any) -> Callable[[Callable[[Evidence], ChannelResult]], Channel]:
    """Declares a function as the judge of a channel with these fields."""
    return lambda judge: Channel(judge=judge, **options)
