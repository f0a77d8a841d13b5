"""The channel ``program``: which framework made each side, and whether both are the same program."""

from parity.channels.attest import attest, origins
from parity.channels.channel import Aspect, Channel, Need
from parity.comparison.comparison import Comparison
from parity.prove import Proof
from parity.verdicts import ChannelResult, Finding, Row, Verdict

__all__ = ["CHANNEL"]


def program(work: Comparison) -> ChannelResult:
    """Which framework made each side, and whether both are the same program."""
    if nothing := _nothing(work):
        return nothing
    attested, findings = _attested(work)
    if findings:
        return ChannelResult(name="program", verdict=Verdict.FAILED, detail=attested, findings=findings)
    if work.proof is None:
        why = (
            f", and so do values: {work.walked.frontier[0].sentence()}"
            if work.walked
            else " or meshes differ"
        )
        detail = f"{attested}; no proof, layouts{' differ' if work.walked else ''}{why}"
        return ChannelResult(name="program", verdict=Verdict.EQUAL, detail=detail)
    verdict = work.proof.rung
    found, missed = work.proof.findings(), ""
    if work.required.of_programs and not work.required.met_by(verdict):
        verdict, missed = Verdict.FAILED, f"; {verdict} where {work.required} is required"
        found = found or work.differences  # what a walk shows has no place of its own
    return ChannelResult(
        name="program",
        verdict=verdict,
        detail=f"{attested}; {work.proof.sentence()}{missed}",
        findings=found,
        measures={"operations": sum(work.proof.operations), "seconds": work.proof.seconds},
        tables={"rules": _rules(work.proof)} if work.proof.rules else {},
    )


def _rules(proof: Proof) -> list[Row]:
    return [{"rule": name, "times": times} for name, times in proof.rules.items()]


def _nothing(work: Comparison) -> ChannelResult | None:
    """Returns that there is nothing to compare, where no side returns a single array."""
    if any(any(side.traced.out_info.values()) for side in (work.reference, work.candidate)):
        return None
    finding = Finding(
        where=work.case.program,
        reference="expected values, gradients or state",
        candidate="both sides return no array",
        cause="a check that cannot fail",
        next_step="return what the program computes, by group",
    )
    return ChannelResult(
        name="program", verdict=Verdict.VACUOUS, detail="nothing to compare", findings=(finding,)
    )


def _attested(work: Comparison) -> tuple[str, tuple[Finding, ...]]:
    """Returns in words which framework made each side, and what speaks against it."""
    sides = (work.reference, work.candidate)
    found = [origins(side) for side in sides]
    flavours = " and ".join(side.build.flavour for side in sides)
    if work.case.bridged:
        return f"claims {flavours}, bridged: {work.case.bridged}", ()
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
    return (
        f"claims {flavours}, not attested: no module of theirs in the trace and no source files of their own",
        (),
    )


CHANNEL = Channel(
    name="program",
    about="which framework made each side; the proof, or the first operation that differs",
    column="prog",
    aspect=Aspect.PROGRAM,
    needs=Need.LOWER,
    judge=program,
)
