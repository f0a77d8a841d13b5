"""The channel ``inputs``: both sides get the same batches, which a proof does not cover."""

from collections.abc import Iterator

from parity.builds.build import SEED
from parity.channels.channel import Aspect, channel
from parity.channels.results import compared
from parity.compare.evidence import Evidence
from parity.values.ladder import unlike_leaves
from parity.verdicts import ChannelResult, Finding


@channel(column="tree", aspect=Aspect.STATE)
def inputs(evidence: Evidence) -> ChannelResult:
    """Compares the batches of all steps, byte for byte."""
    steps = max(build.programs[evidence.case.program].steps for build in evidence.builds)
    findings = [finding for step in range(steps) for finding in _findings(evidence, step)]
    batches = "1 batch" if steps == 1 else f"{steps} batches"
    detail = f"{len(findings)} inputs differ" if findings else f"the same bytes in {batches}"
    return compared(detail, findings)


def _findings(evidence: Evidence, step: int) -> Iterator[Finding]:
    left, right = (build.inputs(SEED + step) for build in evidence.builds)
    if left is right:
        return
    prefix = f"step{step + 1}/" if step else ""
    for found in unlike_leaves(left, right, "given"):
        yield Finding(
            where=f"input {prefix}{found.path}{list(found.worst) or ''}",
            reference=found.reference,
            candidate=found.candidate,
            cause="the two sides are not given the same batch, such as targets that are shifted on one side",
            next_step="give both builds one function for their inputs",
        )
