"""The channel ``inputs``: both sides get the same batches, which a proof does not cover."""

from collections.abc import Iterator

import numpy as np

from parity.builds.build import SEED
from parity.builds.tree import unlike_entries
from parity.channels.channel import Aspect, channel
from parity.channels.results import compared
from parity.compare.evidence import Evidence
from parity.verdicts import ChannelResult, Finding

BUILD = "give both builds one function for their inputs"


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
    for name in sorted({*left, *right}):
        if name not in left or name not in right:
            words = ["given" if name in side else "not given" for side in (left, right)]
            yield Finding(
                where=f"input {prefix}{name}", reference=words[0], candidate=words[1], next_step=BUILD
            )
        elif difference := _difference(np.asarray(left[name]), np.asarray(right[name])):
            place, reference, candidate = difference
            yield Finding(
                where=f"input {prefix}{name}{place}",
                reference=reference,
                candidate=candidate,
                cause="the two sides are not given the same batch, such as targets that are shifted on one side",
                next_step=BUILD,
            )


def _difference(left: np.ndarray, right: np.ndarray) -> tuple[str, str, str] | None:
    """Returns the index of the first difference and both entries; None if the bytes are equal."""
    kinds = [f"{array.dtype}{list(array.shape)}" for array in (left, right)]
    if kinds[0] != kinds[1]:
        return "", kinds[0], kinds[1]
    if left.tobytes() == right.tobytes():
        return None
    first = int(np.argmax(unlike_entries(left, right)))
    place = [int(index) for index in np.unravel_index(first, left.shape)]
    return f"{place or ''}", f"{left.flat[first]}", f"{right.flat[first]}"
