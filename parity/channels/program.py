"""The channel ``program``: the framework that made each side, and the proof that both are the same program."""

import dataclasses

from parity.channels.attest import attest, origins
from parity.channels.channel import BY_RULES, Aspect, Channel, Need
from parity.channels.results import vacuous
from parity.compare.evidence import Evidence
from parity.compare.one_program import compile_to_one
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["CHANNEL", "RESTS_ON_NUMBERS"]

RESTS_ON_NUMBERS = "not settled for all inputs: the numbers decide"
"""The next step of a first difference that is not graded."""
NO_RUN_SETTLES = "no run settles that; make both sides equal, prove it in exact arithmetic, or waive it"


def program(evidence: Evidence) -> ChannelResult:
    """Attests the framework that made each side, and returns the verdict of the proof."""
    if not any(any(side.traced.out_info.values()) for side in evidence.sides):
        nothing = Finding(
            where=evidence.case.program,
            reference="expected values, gradients or state",
            candidate="both sides return no array",
            cause="a check that cannot fail",
            next_step="return what the program computes, by group",
        )
        return vacuous([nothing], "nothing to compare")
    attested, findings = _attested(evidence)
    if findings:
        return ChannelResult(verdict=Verdict.FAILED, detail=attested, findings=findings)
    if evidence.proof is None:
        return _without_proof(evidence, attested)
    verdict, found, missed = evidence.proof.rung, evidence.proof.findings(), ""
    if evidence.required.of_programs and not evidence.required.met_by(verdict):
        verdict, missed = Verdict.FAILED, f"; {verdict} where {evidence.required} is required"
        found = found or evidence.differences  # the unrolled proof has no places
    elif verdict is Verdict.UNPROVED:
        verdict, found = _graded(evidence, found)
    measures = {"operations": sum(evidence.proof.operations), "seconds": evidence.proof.seconds}
    tables = {}
    if rules := evidence.proof.rules:
        measures[BY_RULES] = len(rules)
        tables = {"rules": [{"rule": name, "times": times} for name, times in rules.items()]}
    return ChannelResult(
        verdict=verdict,
        detail=f"{attested}; {evidence.proof.sentence()}{missed}{_strongest(evidence)}",
        findings=found,
        measures=measures,
        tables=tables,
    )


def _graded(evidence: Evidence, found: tuple[Finding, ...]) -> tuple[Verdict, tuple[Finding, ...]]:
    """Returns the verdict on programs that differ: failed if neither numbers nor another proof can settle it."""
    assert evidence.proof is not None
    reasons = evidence.proof.reasons()
    if (
        reasons
        and not (evidence.case.accept.prove_exact and evidence.exact_proof.proved)
        and not _compiles_to_one(evidence)
    ):
        return Verdict.FAILED, tuple(
            dataclasses.replace(finding, next_step=f"{reason}: {NO_RUN_SETTLES}")
            for finding, reason in reasons.items()
        )
    return Verdict.UNPROVED, _resting(found)


def _strongest(evidence: Evidence) -> str:
    """Returns the strongest claim for all inputs where the strict proof fails, as words."""
    if evidence.proof is None or evidence.proof.proved or "program" in evidence.case.accept.not_applicable:
        return ""
    if _compiles_to_one(evidence):
        backend = evidence.reference.backend.name
        return f"; but both compile to one program on {backend}: equal bits there for all inputs"
    return f"; but {evidence.exact_claim}" if evidence.exact_claim else ""


def _compiles_to_one(evidence: Evidence) -> bool:
    return evidence.reference.backend.executes and evidence.read(compile_to_one)


def _resting(found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(dataclasses.replace(finding, next_step=RESTS_ON_NUMBERS) for finding in found)


def _without_proof(evidence: Evidence, attested: str) -> ChannelResult:
    """Returns the result if operations do not correspond, because layouts or meshes differ."""
    if evidence.unrolled_proof is None:
        return ChannelResult(
            verdict=Verdict.SKIPPED,
            detail=f"{attested}; programs not compared: layouts or meshes differ",
        )
    sentence = evidence.unrolled_proof.frontier[0].sentence()
    return ChannelResult(
        verdict=Verdict.UNPROVED,
        detail=f"{attested}; no proof, layouts differ, and so do values: {sentence}{_strongest(evidence)}",
        findings=_resting(evidence.unrolled_proof.findings()),
    )


def _attested(evidence: Evidence) -> tuple[str, tuple[Finding, ...]]:
    """Returns the attested framework of each side, as text, and the findings against it."""
    sides = evidence.sides
    found = [origins(side) for side in sides]
    flavours = " and ".join(side.build.flavour for side in sides)
    if evidence.case.accept.bridged:
        return f"claims {flavours}, bridged: {evidence.case.accept.bridged}", ()
    findings = tuple(
        finding
        for side, other, made in zip(sides, sides[::-1], found, strict=True)
        for finding in attest(
            side.build,
            made,
            () if side.build.flavour is other.build.flavour else other.build.sources,
        )
    )
    if findings:
        return f"claimed {flavours}", findings
    shown = all(
        side.build.sources or made.modules.get(side.build.flavour)
        for side, made in zip(sides, found, strict=True)
    )
    if shown:
        return f"attested {flavours}", ()
    reason = "no module of theirs in the trace and no source files of their own"
    return f"claims {flavours}, not attested: {reason}", ()


CHANNEL = Channel(
    name="program",
    about="which framework made each side; the proof, or the first operation that differs",
    column="prog",
    aspect=Aspect.PROGRAM,
    needs=Need.LOWER,
    judge=program,
)
