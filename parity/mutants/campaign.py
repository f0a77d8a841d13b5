"""Tries many mutants in parallel; reuses earlier outcomes with the same content."""

import concurrent.futures
import hashlib
import json
import platform
from collections.abc import Generator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from parity.mutants.mutant import Mutant
from parity.mutants.outcome import Outcome
from parity.mutants.processes import Processes
from parity.mutants.trial import try_mutant

__all__ = ["content_of", "sources_of", "try_mutants"]

VERSIONS = ("jax", "jaxlib", "flax", "optax", "numpy")


def content_of(mutant: Mutant, sources: str) -> str:
    """Returns a digest of all inputs of a mutant's outcome.

    Args:
        mutant: the mutant.
        sources: digest of the project, from `sources_of`.
    """
    text = json.dumps(msgspec.to_builtins(mutant), sort_keys=True)
    return hashlib.sha256(f"{sources}{text}".encode()).hexdigest()[:16]


def sources_of(root: Path) -> str:
    """Returns a digest of the project's sources and tests, and of the versions of Python and numeric packages."""
    digest = hashlib.sha256(platform.python_version().encode())
    for name in VERSIONS:
        digest.update(f"{name}{metadata.version(name)}".encode())
    packages = sorted(path.parent for path in root.glob("*/__init__.py"))
    for folder in (*packages, root / "tests"):
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()


def try_mutants(
    mutants: Sequence[Mutant],
    root: Path,
    known: Mapping[str, Outcome],
    *,
    workers: int = 1,
    limit: float = 600.0,
) -> Generator[Outcome, None, None]:
    """Yields the outcome of each mutant, as soon as it is known.

    Args:
        mutants: to be tried.
        root: root of the project that they patch.
        known: earlier outcomes, by id; those of the same content are yielded unchanged.
        workers: number of mutants that are tried at once.
        limit: seconds that each may take.
    """
    sources = sources_of(root)
    contents = {mutant.id: content_of(mutant, sources) for mutant in mutants}
    untried = []
    for mutant in mutants:
        before = known.get(mutant.id)
        if before and before.content == contents[mutant.id]:
            yield before
        else:
            untried.append(mutant)
    processes = Processes()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        tries = [pool.submit(try_mutant, one, root, contents[one.id], processes, limit) for one in untried]
        try:
            for done in concurrent.futures.as_completed(tries):
                yield done.result()
        finally:
            for one in tries:
                one.cancel()
            processes.end()
