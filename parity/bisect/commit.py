"""The axis ``commit``: the first commit with the same failure, by ``git bisect`` in a separate worktree.

The result of each commit is kept in a log inside the repository's ``.git`` until the search ends. A search that was
killed continues from it. The user's working tree, index and branches are never changed.
"""

import contextlib
import dataclasses
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from parity.bisect.axis import Status
from parity.bisect.check import Check, Found, Outcome, Places

__all__ = ["CommitSearch", "search_commits"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommitSearch:
    """A search over commits.

    Args:
        repository: a folder in it.
        good, bad: a commit that passes and one that fails.
        check: repeated at each commit, in its worktree.
    """

    repository: Path
    good: str
    bad: str
    check: Check


def search_commits(search: CommitSearch, notify: Callable[[str], None] = lambda words: None) -> Found:
    """Returns the first commit with the failure of the bad one.

    Args:
        search: repository, commits and check.
        notify: called with the progress, as text.

    Raises:
        ValueError: no repository, no such commits, or the good one fails or the bad one passes.
    """
    good, bad = (_commit(search.repository, name) for name in (search.good, search.bad))
    _ = _git(
        search.repository, "merge-base", "--is-ancestor", good, bad, why="--good must be an ancestor of --bad"
    )
    folder = _folder(search, good, bad)
    folder.mkdir(parents=True, exist_ok=True)
    with _worktree(search.repository, folder, bad) as tree:

        @contextlib.contextmanager
        def lay(commit: str) -> Iterator[tuple[Path, list[str]]]:
            _git(tree, "checkout", "--quiet", "--detach", "--force", commit)
            yield tree, [str(tree)]

        places = Places(folder, search.check, lay, lambda commit: notify(f"commit {commit[:10]}"))
        for option, name, commit, status, does in (
            ("--bad", search.bad, bad, Status.FAILS, "fails"),
            ("--good", search.good, good, Status.PASSES, "passes"),
        ):
            if places(commit) is not status:
                said = places.said(commit)
                raise ValueError(f"{option} {name}: got a case that says {said}, expected one that {does}")
        outcome, commits = _bisect(tree, good, bad, places)
        ends = (commits[0], _commit(tree, f"{commits[0]}~1")) if outcome is Outcome.CULPRIT else ()
        return places.found(outcome, commits, ends)


def _git(where: Path, *words: str, why: str = "") -> str:
    ended = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = ended.stderr.strip() or f"exit code {ended.returncode}"
        raise ValueError(f"git {' '.join(words[:2])}: got {said}{f'; {why}' if why else ''}")
    return ended.stdout.strip()


def _commit(where: Path, name: str) -> str:
    return _git(
        where, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}", why="expected a commit"
    )


def _folder(search: CommitSearch, good: str, bad: str) -> Path:
    """Returns the folder of a search's log; it depends only on the commits and the check."""
    common = Path(search.repository, _git(search.repository, "rev-parse", "--git-common-dir"))
    key = hashlib.sha256(repr((good, bad, search.check)).encode()).hexdigest()[:16]
    return (common / "parity-bisect" / key).resolve()


@contextlib.contextmanager
def _worktree(repository: Path, folder: Path, commit: str) -> Iterator[Path]:
    """Yields a fresh worktree; removes those of killed searches first."""
    for left in folder.glob("tree-*"):
        shutil.rmtree(left, ignore_errors=True)
    tree = folder / f"tree-{os.getpid()}"
    _git(repository, "worktree", "prune")
    _git(repository, "worktree", "add", "--detach", "--quiet", str(tree), commit)
    try:
        yield tree
    finally:
        shutil.rmtree(tree, ignore_errors=True)
        _git(repository, "worktree", "prune")


def _bisect(tree: Path, good: str, bad: str, places: Places) -> tuple[Outcome, tuple[str, ...]]:
    """Runs ``git bisect``; returns the culprit, or the commits that may be."""
    _git(tree, "bisect", "start", bad, good)
    words = {Status.PASSES: "good", Status.FAILS: "bad"}
    while True:
        lines = _git(tree, "bisect", "log").splitlines()
        for kind, outcome in (("first bad", Outcome.CULPRIT), ("possible first bad", Outcome.SEVERAL)):
            named = [line for line in lines if line.startswith(f"# {kind} commit")]
            if named:
                return outcome, tuple(line.partition("[")[2].partition("]")[0] for line in named)
        word = words.get(places(_commit(tree, "HEAD")), "skip")
        # git ends with 2 if only skipped commits are left, which its log names
        ended = subprocess.run(["git", "bisect", word], cwd=tree, capture_output=True, text=True, check=False)
        if ended.returncode not in (0, 2):
            raise ValueError(f"git bisect {word}: got {ended.stderr.strip()}")
