"""The axis ``commit``: the first commit with the same failure, each checked out in a separate worktree.

The worktree is kept inside the repository's ``.git`` until the search ends. The user's working tree, index and branches
are never changed.
"""

import contextlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from parity.bisect.axis import Status
from parity.bisect.history import Check, History
from parity.run.record import Bisect


def search_commits(
    check: Check,
    where: Path,
    good: str,
    bad: str,
    *,
    notify: Callable[[str], None] = lambda words: None,
) -> Bisect:
    """Returns the first commit with the failure of the bad one.

    Args:
        check: repeated at each commit, in its worktree.
        where: a folder in the repository.
        good, bad: a commit that passes and one that fails, else ValueError.
    """
    words = ("rev-parse", "--verify", "--end-of-options")
    low, high = (_git(where, *words, f"{name}^{{commit}}", why="expected a commit") for name in (good, bad))
    _git(where, "merge-base", "--is-ancestor", low, high, why="--good must be an ancestor of --bad")
    with _worktree(where, high) as tree:

        @contextlib.contextmanager
        def lay(commit: str) -> Iterator[tuple[Path, list[str]]]:
            _git(tree, "checkout", "--quiet", "--detach", "--force", commit)
            yield tree, [str(tree)]

        def between(goods: Sequence[str], last: str) -> list[str]:
            return _git(tree, "rev-list", "--topo-order", "--reverse", last, "--not", *goods).split()

        history = History("commit", check, lay, notify)
        for option, commit, status, does in (
            (f"--bad {bad}", high, Status.FAILS, "fails"),
            (f"--good {good}", low, Status.PASSES, "passes"),
        ):
            if (said := history.test(commit)).status is not status:
                raise ValueError(f"{option}: got a case that says {said}, expected one that {does}")
        return history.search(low, high, between)


def _git(where: Path, *words: str, why: str = "") -> str:
    ended = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = ended.stderr.strip() or f"exit code {ended.returncode}"
        raise ValueError(f"git {' '.join(words[:2])}: got {said}{f'; {why}' if why else ''}")
    return ended.stdout.strip()


@contextlib.contextmanager
def _worktree(repository: Path, commit: str) -> Iterator[Path]:
    """Yields a fresh worktree."""
    common = Path(repository, _git(repository, "rev-parse", "--git-common-dir")).resolve()
    with tempfile.TemporaryDirectory(
        prefix="parity-bisect-", dir=common, ignore_cleanup_errors=True
    ) as folder:
        tree = Path(folder, "tree")
        _git(repository, "worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree
        finally:
            _git(repository, "worktree", "remove", "--force", str(tree))
