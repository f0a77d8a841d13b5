"""The axis ``commit``: the first commit with the same failure, by ``git bisect run`` in a separate worktree.

The result of each commit is kept in a log inside the repository's ``.git`` until the search ends. A search that was
killed continues from it. The user's working tree, index and branches are never changed.
"""

import contextlib
import dataclasses
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from parity.bisect.check import Check, CheckResult, Found, Log, Outcome, engine
from parity.bisect.signature import Signature, Status

__all__ = ["CommitSearch", "search_commits", "step"]

QUESTION = "question.json"

EXITS = {Status.PASSES: 0, Status.FAILS: 1, Status.OTHER: 125, Status.AMBIGUOUS: 125}
"""Exit codes for ``git bisect run``: good, bad, cannot be tested."""


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
        signature = _ends(search, folder, tree, (good, bad), notify)
        outcome, commits = _run(folder, tree, (good, bad), notify)
        if outcome is Outcome.CULPRIT and not _confirmed(folder, tree, commits[0], notify):
            outcome = Outcome.AMBIGUOUS
        found = Found(
            outcome=outcome, culprits=commits, signature=signature, log=tuple(Log(folder).entries())
        )
    shutil.rmtree(folder)
    with contextlib.suppress(OSError):  # another search may still be running
        folder.parent.rmdir()
    return found


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


def _ends(
    search: CommitSearch, folder: Path, tree: Path, ends: tuple[str, str], notify: Callable[[str], None]
) -> Signature:
    """Checks that the bad commit fails and the good one passes; returns the failure."""
    good, bad = ends
    if not (folder / QUESTION).exists():
        notify(f"the bad commit {bad[:10]}")
        result = _evaluate_case(search.check, tree)
        if result.status is not Status.FAILS or result.signature is None:
            raise ValueError(f"--bad {search.bad}: got a case that says {result}, expected one that fails")
        Log(folder).add(bad, result)
        dataclasses.replace(search.check, signature=result.signature).write(folder / QUESTION)
    if Log(folder).status(good) is None:
        notify(f"the good commit {good[:10]}")
        _git(tree, "checkout", "--quiet", "--detach", good)
        step(folder, tree)
    if Log(folder).status(good) is not Status.PASSES:
        said = Log(folder).said(good)
        raise ValueError(f"--good {search.good}: got a case that says {said}, expected one that passes")
    known = Check.read(folder / QUESTION).signature
    assert known is not None
    return known


def _evaluate_case(check: Check, tree: Path) -> CheckResult:
    return check.evaluate_case(tree, tree.parent / f"report-{tree.name}.json", [str(tree)])


def _run(
    folder: Path, tree: Path, ends: tuple[str, str], notify: Callable[[str], None]
) -> tuple[Outcome, tuple[str, ...]]:
    """Runs ``git bisect``; commits with a known result are not checked again."""
    good, bad = ends
    _git(tree, "bisect", "start", bad, good)
    words = [sys.executable, "-m", "parity.bisect.commit", str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(engine())}
    command = ["git", "bisect", "run", *words]
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(("Bisecting:", "parity:")):
                notify(line.strip())
    lines = _git(tree, "bisect", "log").splitlines()
    named = {
        kind: tuple(
            line.partition("[")[2].partition("]")[0] for line in lines if line.startswith(f"# {kind}")
        )
        for kind in ("first bad commit", "possible first bad commit")
    }
    if named["first bad commit"]:
        return Outcome.CULPRIT, named["first bad commit"][-1:]
    if not named["possible first bad commit"]:
        raise ValueError(f"git bisect run: got no result, expected a first bad commit; its log: {lines[-3:]}")
    return Outcome.SEVERAL, named["possible first bad commit"]


def _confirmed(folder: Path, tree: Path, culprit: str, notify: Callable[[str], None]) -> bool:
    """Checks the culprit and the commit before it again; False if a result differs from the logged one."""
    expected = {culprit: Status.FAILS, _commit(tree, f"{culprit}~1"): Status.PASSES}
    check = Check.read(folder / QUESTION)
    for commit, status in expected.items():
        notify(f"{commit[:10]} again")
        _git(tree, "checkout", "--quiet", "--detach", "--force", commit)
        if _evaluate_case(check, tree).status is not status and Log(folder).status(commit) is status:
            return False
    return True


def step(folder: Path, tree: Path) -> int:
    """Checks the current commit unless its result is known; returns the exit code for ``git bisect run``.

    Args:
        folder: folder of the search.
        tree: the worktree.
    """
    commit = _git(tree, "rev-parse", "HEAD")
    status = Log(folder).status(commit)
    if status is None:
        result = _evaluate_case(Check.read(folder / QUESTION), tree)
        if _git(tree, "rev-parse", "HEAD") != commit:
            raise ValueError(f"worktree {tree}: another search has moved it on")
        Log(folder).add(commit, result)
        status = result.status
    return EXITS[status]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    code = step(folder, Path.cwd())
    print(
        f"parity: {len(Log(folder).entries())} commits known, {shlex.quote(Path.cwd().name)} exits {code}",
        flush=True,
    )
    sys.exit(code)
