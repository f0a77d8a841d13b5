"""Flavour attestation: a program shows by the modules and files in its trace which framework made it."""

import collections
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence

from flax import linen, nnx

from parity.comparison.side import Side
from parity.programs.build import Build, Flavour
from parity.prove import op_frames
from parity.verdicts import EXPECTED_GOT, Finding

__all__ = ["Made", "attest", "made"]

Made = Mapping[Flavour, int]
OTHER = {Flavour.LINEN: Flavour.NNX, Flavour.NNX: Flavour.LINEN}
BRIDGE = "flax/nnx/bridge/"
ITSELF = "a build that runs the other twin, so the check compares a twin with itself"


def made(side: Side) -> Made:
    """Returns how many live operations come from the modules of each framework.

    The innermost module on an operation's call stack counts: a Linen module inside ``ToNNX`` is Linen.
    Operations outside of any module, such as a loss, do not count.
    """
    methods = _methods(len(list(_classes(linen.Module))), len(list(_classes(nnx.Module))))
    found: collections.Counter[Flavour] = collections.Counter()
    for frames in op_frames(side.operations):
        owners = (methods.get((file, function)) for function, file, _ in frames)
        owner = next((owner for owner in owners if owner), None)
        if owner:
            found[owner] += 1
    return found


def attest(build: Build, files: Mapping[str, int], foreign: Sequence[str], counted: Made) -> list[Finding]:
    """Finds evidence that a program was not made by the flavour its build claims.

    Args:
        build: the side and its claim.
        files: operations per source file anywhere on their call stacks.
        foreign: path fragments that only the other flavour's model code has.
        counted: operations of modules per framework, as `made` counts them.

    Returns:
        Findings when all modules are of the other framework, when no operation comes from the build's own
        sources, or when some come from the other flavour's.
    """

    def count(fragments: Sequence[str]) -> int:
        return sum(number for file, number in files.items() if any(part in file for part in fragments))

    problems = []
    other = OTHER[build.flavour]
    if counted.get(other) and not counted.get(build.flavour):
        problems.append(
            (f"all {counted[other]} operations of modules are of {other} modules", f"{build.flavour} modules")
        )
    if build.sources and not count(build.sources):
        problems.append((f"no operation from {', '.join(build.sources)}", "operations of its own model code"))
    if foreign and count(foreign):
        problems.append(
            (f"{count(foreign)} operations from {', '.join(foreign)}", "none from the other twin")
        )
    return [_finding(build, got, expected) for got, expected in problems]


def _finding(build: Build, got: str, expected: str) -> Finding:
    return Finding(
        where=f"flavour of {build.name}",
        reference=f"of {build.flavour}: {expected}",
        candidate=got,
        labels=EXPECTED_GOT,
        cause=ITSELF,
        next_step="look at what the pair's build function constructs; a bridge that is meant is declared in `bridged`",
    )


def _classes(root: type) -> Iterator[type]:
    yield root
    for child in root.__subclasses__():
        yield from _classes(child)


@functools.lru_cache(maxsize=1)
def _methods(linen_classes: int, nnx_classes: int) -> dict[tuple[str, str], Flavour]:
    """Returns whose the methods are, by file and name; made anew when there are more classes, local ones too."""
    found: dict[tuple[str, str], Flavour] = {}
    for flavour, root in ((Flavour.LINEN, linen.Module), (Flavour.NNX, nnx.Module)):
        for cls in _classes(root):
            for method in vars(cls).values():
                code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
                if code is not None and BRIDGE not in code.co_filename:
                    found[code.co_filename, code.co_qualname] = flavour
    return found
