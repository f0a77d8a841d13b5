"""The channel ``program``: which framework made each side, and whether both are the same program."""

from parity.channels.attest import attest
from parity.channels.channel import Aspect, Channel, Need
from parity.comparison.comparison import Comparison
from parity.prove import source_files
from parity.verdicts import ChannelResult, Finding, Verdict

__all__ = ["CHANNEL"]


def program(work: Comparison) -> ChannelResult:
    """Which framework made each side, and whether both are the same program."""
    findings: list[Finding] = []
    for side, other in ((work.reference, work.candidate), (work.candidate, work.reference)):
        same = side.build.flavour is other.build.flavour
        files = source_files(side.operations).stack
        findings += attest(side.build, files, () if same else other.build.sources)
    flavours = " and ".join(side.build.flavour for side in (work.reference, work.candidate))
    attested = f"attested {flavours}"
    if not all(build.sources for build in work.builds):
        attested = f"claims {flavours}, not attested: the models have no source files of their own"
    if findings:
        detail = f"claimed {flavours}"
        return ChannelResult(name="program", verdict=Verdict.FAILED, detail=detail, findings=tuple(findings))
    if work.proof is None:
        detail = f"{attested}; no proof, layouts or meshes differ"
        return ChannelResult(name="program", verdict=Verdict.EQUAL, detail=detail)
    unproved = Verdict.FAILED if work.case.lowest is Verdict.PROVED else Verdict.UNPROVED
    verdict = Verdict.PROVED if work.proof.proved else unproved
    return ChannelResult(
        name="program",
        verdict=verdict,
        detail=f"{attested}; {work.proof.sentence()}",
        findings=work.proof.findings(),
        measures={"operations": sum(work.proof.operations), "seconds": work.proof.seconds},
    )


CHANNEL = Channel(
    name="program",
    about="which framework made each side; the proof, or the first operation that differs",
    column="prog",
    aspect=Aspect.PROGRAM,
    needs=Need.LOWER,
    judge=program,
)
