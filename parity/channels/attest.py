"""Flavour attestation: the modules and files in a program's trace show which framework made it."""

import collections
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence

from flax import linen, nnx

from parity.builds.build import Build, Flavour
from parity.compare.side import Side
from parity.ir.jax_internals import live, traceback_codes
from parity.ir.location import call_stacks
from parity.verdicts import EXPECTED_GOT, Finding

__all__ = ["Origins", "attest", "origins"]

OTHER = {Flavour.LINEN: Flavour.NNX, Flavour.NNX: Flavour.LINEN}
BRIDGE = "flax/nnx/bridge/"
HARNESS = (Side.function.function.__code__.co_filename, "Side.function.<locals>.function")
"""The end of the program's part of a call stack: frames further out belong to the harness and its caller."""
ITSELF = (
    "a build that runs the other twin, so the check compares a twin with itself; "
    "or code that both use, such as a loss, in a file of one flavour"
)


@dataclasses.dataclass(frozen=True)
class Origins:
    """Counts of the modules and files that the operations of a trace come from.

    Args:
        modules: number of operations from the modules of each framework. The innermost module on the call stack counts,
            so a Linen module inside ``ToNNX`` is Linen. Operations outside any module, such as a loss, do not count.
        files: number of operations with each file on their call stacks.
    """

    modules: Mapping[Flavour, int]
    files: Mapping[str, int]


def origins(side: Side) -> Origins:
    """Returns the modules and files that a side's operations come from.

    ``jit`` keeps traces with the call stacks of the first caller: a call counts as one operation of its caller.

    Args:
        side: traced if it is not yet.
    """
    methods = _methods(len(list(_classes(linen.Module))), len(list(_classes(nnx.Module))))
    modules: collections.Counter[Flavour] = collections.Counter()
    files: collections.Counter[str] = collections.Counter()
    for stack, count in collections.Counter(call_stacks(live(side.traced.jaxpr.jaxpr))).items():
        codes = itertools.chain.from_iterable(map(traceback_codes, stack))
        named = [(code.co_filename, code.co_qualname) for code in codes]
        own = named[: named.index(HARNESS)] if HARNESS in named else named
        for file in {file for file, _ in own}:
            files[file] += count
        owner = next((methods[name] for name in own if name in methods), None)
        if owner:
            modules[owner] += count
    return Origins(modules, files)


def attest(build: Build, found: Origins, foreign: Sequence[str]) -> list[Finding]:
    """Finds evidence that a program was not made by the flavour its build claims.

    Args:
        build: the side and its claim.
        found: the origins of its operations.
        foreign: path fragments that only the other flavour's model code has.

    Returns:
        Findings if all modules are of the other framework, if no operation comes from the build's own sources, or if
        some operations come from the other flavour's sources.
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
    """Returns the flavour of each method, by file and name. Recomputed if the number of classes has grown."""
    found: dict[tuple[str, str], Flavour] = {}
    for flavour, root in ((Flavour.LINEN, linen.Module), (Flavour.NNX, nnx.Module)):
        for cls in _classes(root):
            for method in vars(cls).values():
                code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
                if code is not None and BRIDGE not in code.co_filename:
                    found[code.co_filename, code.co_qualname] = flavour
    return found
