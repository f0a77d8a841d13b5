"""Flavour attestation: a program shows by the modules and files in its trace which framework made it."""

import collections
import dataclasses
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence

from flax import linen, nnx

from parity.builds.build import Build, Flavour
from parity.compare.side import Side
from parity.ir.jax_internals import live
from parity.ir.location import call_stacks
from parity.verdicts import EXPECTED_GOT, Finding

__all__ = ["Origins", "attest", "origins"]

OTHER = {Flavour.LINEN: Flavour.NNX, Flavour.NNX: Flavour.LINEN}
BRIDGE = "flax/nnx/bridge/"
HARNESS = (Side.function.func.__code__.co_filename, "Side.function.<locals>.function")
"""What is further out on a call stack is the harness, and whoever called it."""
ITSELF = "a build that runs the other twin, so the check compares a twin with itself"


@dataclasses.dataclass(frozen=True)
class Origins:
    """Where the operations of a trace come from.

    Args:
        modules: how many come from the modules of each framework: from the innermost module on the call stack, so
            that a Linen module inside ``ToNNX`` is Linen. Those outside of any module, such as a loss, do not count.
        files: how many have each file on their call stacks.
    """

    modules: Mapping[Flavour, int]
    files: Mapping[str, int]


def origins(side: Side) -> Origins:
    """Returns where what a side computes comes from.

    ``jit`` keeps traces with the call stacks of whoever traced first: a call counts as one operation of its caller.

    Args:
        side: traced when asked.
    """
    methods = _methods(len(list(_classes(linen.Module))), len(list(_classes(nnx.Module))))
    modules: collections.Counter[Flavour] = collections.Counter()
    files: collections.Counter[str] = collections.Counter()
    for codes in call_stacks(live(side.traced.jaxpr.jaxpr)):
        named = [(code.co_filename, code.co_qualname) for code in codes]
        own = named[: named.index(HARNESS)] if HARNESS in named else named
        files.update({file for file, _ in own})
        owner = next((methods[name] for name in own if name in methods), None)
        if owner:
            modules[owner] += 1
    return Origins(modules, files)


def attest(build: Build, found: Origins, foreign: Sequence[str]) -> list[Finding]:
    """Finds evidence that a program was not made by the flavour its build claims.

    Args:
        build: the side and its claim.
        found: where its operations come from.
        foreign: path fragments that only the other flavour's model code has.

    Returns:
        Findings when all modules are of the other framework, when no operation comes from the build's own
        sources, or when some come from the other flavour's.
    """

    def count(fragments: Sequence[str]) -> int:
        return sum(number for file, number in found.files.items() if any(part in file for part in fragments))

    problems = []
    other = OTHER[build.flavour]
    if found.modules.get(other) and not found.modules.get(build.flavour):
        problems.append(
            (
                f"all {found.modules[other]} operations of modules are of {other} modules",
                f"{build.flavour} modules",
            )
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
