"""Flavour attestation: a program proves by its source files which framework made it."""

from collections.abc import Mapping, Sequence

from parity.programs.build import Build
from parity.verdicts import EXPECTED_GOT, Finding

__all__ = ["attest"]


def attest(build: Build, files: Mapping[str, int], foreign: Sequence[str]) -> list[Finding]:
    """Finds evidence that a program was not made by the flavour its build claims.

    Args:
        build: the side and its claim.
        files: operations per source file anywhere on their call stacks.
        foreign: path fragments that only the other flavour's model code has.

    Returns:
        Findings when no operation comes from the build's own sources, or some from the other flavour's.
    """

    def count(fragments: Sequence[str]) -> int:
        return sum(number for file, number in files.items() if any(part in file for part in fragments))

    problems = []
    if build.sources and not count(build.sources):
        problems.append((f"no operation from {', '.join(build.sources)}", "operations of its own model code"))
    if foreign and count(foreign):
        problems.append(
            (f"{count(foreign)} operations from {', '.join(foreign)}", "none from the other twin")
        )
    return [
        Finding(
            where=f"flavour of {build.name}",
            reference=f"of {build.flavour}: {expected}",
            candidate=got,
            labels=EXPECTED_GOT,
            cause="a build that runs the other twin, so the check compares a twin with itself",
            next_step="look at what the pair's build function constructs",
        )
        for got, expected in problems
    ]
