"""Command-line part of ``parity bisect --search commit`` and ``--search version``."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from parity.cli.options import DIFFERENCE, USAGE, console

if TYPE_CHECKING:
    from parity.bisect.check import Check, Found

__all__ = ["SEARCHES"]

WORDS = {
    "culprit": "the first {kind} that {does} is {names}",
    "several": "the first {kind} that {does} is one of {names}; those between could not be tested",
    "ambiguous": "ambiguous: {names} fails and passes by turns; the check is not deterministic, so it names no culprit",
}
WORDED = {"fails": "fails", "passes": "passes", "other": "cannot be tested", "ambiguous": "is ambiguous"}
SHORT = 12
"""Number of digits of a commit that are printed."""


def _commits(
    case: str,
    ends: tuple[str, str] | None,
    pairs: list[str] | None,
    settings: list[str] | None,
    json: Path | None,
) -> int:
    """Searches commits and prints the result; returns the exit code.

    Args:
        case: id of the case.
        ends: names of a good and a bad commit; None if no good one is named.
        pairs, settings: as ``parity run`` takes them.
        json: file for the record.

    Raises:
        ValueError: no good commit is named, or the search is impossible.
    """
    from parity.bisect.commit import CommitSearch, search_commits

    if not ends:
        raise ValueError("--search commit: got no --good, expected a commit that passes, such as --good v1.2")
    search = CommitSearch(
        repository=Path.cwd(), good=ends[0], bad=ends[1], check=_check(case, pairs, settings)
    )
    with console().status("", spinner="dots") as status:
        found = search_commits(search, lambda words: status.update(words))
    return _told(case, "commit", found, json)


def _versions(
    case: str,
    requirement: str | None,
    pairs: list[str] | None,
    settings: list[str] | None,
    json: Path | None,
) -> int:
    """Searches versions of a dependency and prints the result; returns the exit code.

    Args:
        case: id of the case.
        requirement: package and range.
        pairs, settings: as ``parity run`` takes them.
        json: file for the record.

    Raises:
        ValueError: no range is named, or the search is impossible.
    """
    from parity.bisect.version import VersionSearch, search_versions

    if not requirement:
        raise ValueError(
            '--search version: got no range, expected a package and a range, such as --search version "jax>=0.10,<0.13"'
        )
    search = VersionSearch(requirement=requirement, check=_check(case, pairs, settings), where=Path.cwd())
    with console().status("", spinner="dots") as status:
        found = search_versions(search, lambda words: status.update(words))
    return _told(case, "version", found, json)


def _check(case: str, pairs: list[str] | None, settings: list[str] | None) -> "Check":
    from parity.bisect.check import REPORT, Check

    more = [
        word
        for name, texts in (("--pair", pairs), ("--set", settings))
        for text in texts or ()
        for word in (name, text)
    ]
    words = (sys.executable, "-m", "parity", "run", case, "--json", REPORT, *more)
    return Check(words=words, case=case)


def _told(case: str, kind: str, found: "Found", json: Path | None) -> int:
    from parity.report.records import write_json

    screen = console()
    names = ", ".join(name[:SHORT] for name in found.culprits)
    does = "passes" if found.mended else "fails"
    sentence = WORDS[found.outcome].format(kind=kind, does=does, names=names)
    screen.print(f"{case}: {found.signature}: {sentence}", soft_wrap=True, markup=False, highlight=False)
    for entry in found.log:
        why = f": {entry['why']}" if "why" in entry else ""
        line = f"  {entry['name'][:SHORT]} {WORDED[entry['answer']]}{why}"
        screen.print(line, soft_wrap=True, markup=False, highlight=False)
    screen.print(
        f"{found.evaluated} {kind}s told, {len(found.log) - found.evaluated} could not be tested",
        markup=False,
    )
    if json:
        record = {
            "schema": 1,
            "case": case,
            "signature": dataclasses.asdict(found.signature),
            "outcome": str(found.outcome),
            "mended": found.mended,
            f"{kind}s": list(found.culprits),
            "sentence": sentence,
            "log": [dict(entry) for entry in found.log],
        }
        write_json(record, json)
    return USAGE if found.outcome == "ambiguous" else DIFFERENCE


SEARCHES = {"commit": _commits, "version": _versions}
"""Searches that run the command again at every place: ``(case, what, pairs, settings, json) -> exit code``."""
