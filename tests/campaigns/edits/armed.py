"""Records the lines of a project that each case runs: an edit has no effect in a case that skips its lines."""

import argparse
import contextlib
import json
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

import parity
from parity.compare.backends.cache import DiskCache, default_folder, digest
from parity.compare.backends.workers import Pool
from parity.mutants.processes import RUN

__all__ = ["Lines", "lines_of_cases", "main"]

Lines = Mapping[str, Mapping[str, frozenset[int]]]
"""``{case id: {file: lines}}``, of functions only: every case runs the lines that an import runs."""
TESTS = Path(__file__).parents[2]
ENGINE = str(Path(parity.__file__).parent)
VERSIONS = ("jax", "jaxlib", "flax", "optax", "numpy")


def sources_of(root: Path) -> str:
    """Returns a digest of the project's sources and tests, and of the versions of Python and numeric packages."""
    parts = [platform.python_version(), *(f"{name}{metadata.version(name)}" for name in VERSIONS)]
    packages = sorted(path.parent for path in root.glob("*/__init__.py"))
    files = [file for folder in (*packages, root / "tests") for file in sorted(folder.rglob("*.py"))]
    return digest(
        [*parts, *(part for file in files for part in (str(file.relative_to(root)), file.read_bytes()))]
    )


def lines_of_cases(
    root: Path,
    sources: str,
    cases: Sequence[str],
    pairs: Sequence[str],
    path: Sequence[Path],
    pool: Pool,
) -> Lines:
    """Returns the lines that cases run; the result is cached by the digest of the sources.

    Args:
        root: root of the project.
        sources: digest of the project.
        cases: selectors; empty for all cases of ``pairs``.
        pairs: ``module:ATTRIBUTE``; empty for those of the project.
        path: folders to import from, in addition to the root.
        pool: runs them.

    Raises:
        ValueError: the cases cannot be run.
    """
    cache = DiskCache(folder=default_folder() / "armed")
    key = digest([sources, *cases, "", *pairs, "", *map(str, path)])
    found = cache.load(key)
    if found is None:
        words = [word for pair in pairs for word in ("--pair", pair)]
        asked = ["campaigns.edits.armed", str(root), *cases, *words]
        with tempfile.TemporaryDirectory(prefix="parity-armed-") as differing:
            folder = Path(differing) if pairs else root  # only the named pairs count outside the project
            code, printed = pool.submit(RUN, asked, folder, [*path, root, TESTS]).result()
        if code:
            raise ValueError(f"cases {', '.join(cases or pairs)}: did not run: {printed.strip()[-300:]}")
        found = json.loads(printed.strip().splitlines()[-1])
        cache.store(key, found)
    return {case: {file: frozenset(lines) for file, lines in held.items()} for case, held in found.items()}


def main() -> None:
    """Runs cases and prints the lines of a project that each executes, as one line of JSON."""
    from parity.cases.case import select
    from parity.cases.settings import collect
    from parity.compare.session import Session
    from parity.run.run import run_case

    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--pair", action="append", default=[])
    asked = parser.parse_args()
    ran: dict[str, dict[str, set[int]]] = {}
    with recorded(asked.root) as begin:
        cases = select(collect(asked.pair, select=asked.cases)[1], asked.cases)
        for case in cases:
            ran[case.id] = begin()
            run_case(case, Session(), ("program",))
    print(json.dumps({id: {file: sorted(lines) for file, lines in held.items()} for id, held in ran.items()}))


@contextlib.contextmanager
def recorded(root: Path) -> Iterator[Any]:
    """Yields a function that begins a new record ``{file: lines}`` of the lines that functions below a folder run."""
    home, record = f"{root.resolve()}/", [{}]
    files: dict[str, str] = {}

    def enter(frame: FrameType, event: str, argument: object):
        code = frame.f_code
        if (
            not code.co_filename.startswith(home)
            or code.co_filename.startswith(ENGINE)
            or not code.co_flags & CO_OPTIMIZED
        ):
            return None
        file = files.setdefault(code.co_filename, code.co_filename.removeprefix(home))
        lines: set[int] = record[-1].setdefault(file, set())

        def line(frame: FrameType, event: str, argument: object):
            lines.add(frame.f_lineno)
            return line

        return line

    def begin() -> dict[str, set[int]]:
        record.append({})
        return record[-1]

    sys.settrace(enter)
    try:
        yield begin
    finally:
        sys.settrace(None)


if __name__ == "__main__":
    main()
