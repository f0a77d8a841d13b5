"""Flavour attestation: a program proves by its source files which framework made it."""

from collections.abc import Mapping, Sequence

from parity.build import Build, Flavour
from parity.verdicts import Finding

__all__ = ["attest"]

FRAMEWORKS = {Flavour.LINEN: "flax/linen/module.py", Flavour.NNX: "flax/nnx/"}


def attest(build: Build, files: Mapping[str, int], foreign: Sequence[str]) -> list[Finding]:
    """Finds evidence that a program was not made by the flavour its build claims.

    Args:
        build: the side and its claim.
        files: operations per source file anywhere on their call stacks.
        foreign: path fragments that only the other flavour's model code has.

    Returns:
        Findings when none of the operations come from the build's own sources, when some come from the
        other flavour's, when a Linen program never went through a Linen module, or an NNX one did.
    """

    def count(fragments: Sequence[str]) -> int:
        return sum(number for file, number in files.items() if any(part in file for part in fragments))

    linen = count([FRAMEWORKS[Flavour.LINEN]])
    problems = []
    if build.sources and not count(build.sources):
        problems.append((f"no operation from {', '.join(build.sources)}", "operations of its own model code"))
    if foreign and count(foreign):
        problems.append((f"{count(foreign)} operations from {', '.join(foreign)}", "none from the other twin"))
    if build.flavour is Flavour.NNX and linen:
        problems.append((f"{linen} operations that came through a Linen module", "none"))
    if build.flavour is Flavour.LINEN and not linen:
        problems.append(("no operation that came through a Linen module", "at least one"))
    return [
        Finding(
            where=f"flavour of {build.name}",
            reference=f"expected of {build.flavour}: {expected}",
            candidate=got,
            cause="a build that runs the other twin, so the check compares a twin with itself",
            next_step="look at what the pair's build function constructs",
        )
        for got, expected in problems
    ]
