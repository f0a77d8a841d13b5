"""``parity bisect --axis commit``: what the command line adds to the search."""

import dataclasses
import sys
from pathlib import Path

from parity.cli.options import DIFFERENCE, USAGE, console

__all__ = ["bisect_commits"]

WORDS = {
    "culprit": "the first commit that fails is {0}",
    "several": "the first commit that fails is one of {0}; those between could not be tested",
    "ambiguous": "ambiguous: {0} fails and passes by turns; the check is not deterministic, so it names no culprit",
}


def bisect_commits(
    case: str,
    good: str | None,
    bad: str,
    pairs: list[str] | None,
    settings: list[str] | None,
    json: Path | None,
) -> int:
    """Searches commits and prints what came of it; returns the exit code.

    Args:
        case: id of the case.
        good, bad: names of commits.
        pairs, settings: as ``parity run`` takes them.
        json: where to write the record.

    Raises:
        ValueError: no good commit is named, or the search cannot be made.
    """
    from parity.bisect.commit import REPORT, Search, search_commits
    from parity.report.records import write_json

    if not good:
        raise ValueError("--axis commit: got no --good, expected a commit that passes, such as --good v1.2")
    more = [
        word
        for name, texts in (("--pair", pairs), ("--set", settings))
        for text in texts or ()
        for word in (name, text)
    ]
    check = (sys.executable, "-m", "parity", "run", case, "--json", REPORT, *more)
    search = Search(repository=Path.cwd(), good=good, bad=bad, check=check, case=case)
    screen = console()
    with screen.status("", spinner="dots") as status:
        found = search_commits(search, lambda words: status.update(words))
    sentence = WORDS[found.outcome].format(", ".join(commit[:12] for commit in found.commits))
    screen.print(f"{case}: {found.signature}: {sentence}", soft_wrap=True, markup=False, highlight=False)
    for entry in found.log:
        screen.print(f"  {entry['commit'][:12]} {entry['answer']}", markup=False, highlight=False)
    screen.print(
        f"{found.evaluated} commits told, {len(found.log) - found.evaluated} could not be tested",
        markup=False,
    )
    if json:
        write_json(_record(case, found, sentence), json)
    return DIFFERENCE if found.outcome == "culprit" else USAGE if found.outcome == "ambiguous" else DIFFERENCE


def _record(case: str, found, sentence: str) -> dict:
    return {
        "schema": 1,
        "case": case,
        "signature": dataclasses.asdict(found.signature),
        "outcome": str(found.outcome),
        "commits": list(found.commits),
        "sentence": sentence,
        "log": [dict(entry) for entry in found.log],
    }
