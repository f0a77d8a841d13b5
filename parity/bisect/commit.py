"""The axis ``commit``: the first commit that fails alike, by ``git bisect run`` in a worktree of its own.

What each commit came to is kept in a log inside the repository's ``.git`` until the search ends: a search that was
killed goes on from there. The user's working tree, index and branches are never touched.
"""

import contextlib
import dataclasses
import enum
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.bisect.signature import Answer, Signature
from parity.verdicts import BLOCKING, ChannelResult
from parity.verdicts import Finding as Difference

__all__ = ["Found", "Search", "answer_of", "search_commits", "step"]

REPORT = "{report}"
"""Stands for the file that the check writes its report to."""
SECONDS = 3_600
"""Longer than any check of one case should take."""
SEVERITY = ("failed", "error", "vacuous", "open")
EXITS = {Answer.PASSES: 0, Answer.FAILS: 1, Answer.OTHER: 125, Answer.AMBIGUOUS: 125}
"""What ``git bisect run`` understands: good, bad, cannot be tested."""


class Outcome(enum.StrEnum):
    """How a search ends."""

    CULPRIT = "culprit"
    SEVERAL = "several"
    AMBIGUOUS = "ambiguous"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """What is searched for.

    Args:
        repository: a folder in it.
        good, bad: a commit that passes and one that fails.
        check: words of the command that checks one commit, run in its worktree; ``{report}`` is where it writes.
        case: id of the case in the report.
    """

    repository: Path
    good: str
    bad: str
    check: tuple[str, ...]
    case: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What a search came to.

    Args:
        outcome: whether one commit is to blame.
        commits: the culprit, or all that it could be.
        signature: the failure.
        log: what each commit came to, in the order in which they were asked.
    """

    outcome: Outcome
    commits: tuple[str, ...]
    signature: Signature
    log: tuple[Mapping[str, str], ...]

    @property
    def evaluated(self) -> int:
        """How many commits were told good or bad; those that could not be tested are not among them."""
        return len(
            {entry["commit"] for entry in self.log if entry["answer"] in (Answer.PASSES, Answer.FAILS)}
        )


def answer_of(
    report: Mapping[str, Any], case: str, signature: Signature | None
) -> tuple[Answer, Signature | None]:
    """Returns what a report in the JSON schema says of a case, and the signature of its failure.

    Args:
        report: of ``parity run --json``.
        case: its id.
        signature: the failure that counts; the worst one where there is none yet.
    """
    record = next((each for each in report.get("cases", ()) if each["id"] == case), None)
    if record is None:
        return Answer.OTHER, None
    results = [
        ChannelResult(
            name=name,
            verdict=each["verdict"],
            detail=each["detail"],
            findings=tuple(
                Difference(where=one["where"], reference="", candidate="") for one in each["findings"]
            ),
        )
        for name, each in record["channels"].items()
    ]
    blocking = sorted(
        (each for each in results if each.verdict in BLOCKING), key=lambda each: SEVERITY.index(each.verdict)
    )
    if not blocking:
        return Answer.PASSES, None
    if signature is None:
        return Answer.FAILS, Signature.seen(blocking[0])
    if any(signature.of(each) for each in blocking):
        return Answer.FAILS, signature
    asked = next((each for each in results if each.name == signature.channel), None)
    return (Answer.OTHER if asked is None or asked in blocking else Answer.PASSES), None


def search_commits(search: Search, tell: Callable[[str], None] = lambda words: None) -> Found:
    """Finds the first commit that fails as the bad one does.

    Args:
        search: what is searched for.
        tell: told how far it is, in words.

    Raises:
        ValueError: no repository, no such commits, or they do not pass and fail as said.
    """
    good, bad = (_commit(search.repository, name) for name in (search.good, search.bad))
    _ = _git(
        search.repository, "merge-base", "--is-ancestor", good, bad, why="--good must be an ancestor of --bad"
    )
    folder = _folder(search, good, bad)
    folder.mkdir(parents=True, exist_ok=True)
    with _worktree(search.repository, folder, bad) as tree:
        signature = _ends(search, folder, tree, (good, bad), tell)
        outcome, commits = _run(folder, tree, (good, bad), tell)
        if outcome is Outcome.CULPRIT and not _confirmed(folder, tree, commits[0], tell):
            outcome = Outcome.AMBIGUOUS
        found = Found(outcome=outcome, commits=commits, signature=signature, log=tuple(_log(folder)))
    shutil.rmtree(folder)
    with contextlib.suppress(OSError):  # another search may still be at work
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


def _folder(search: Search, good: str, bad: str) -> Path:
    """Returns where a search keeps what it knows: the same place for the same question."""
    common = Path(search.repository, _git(search.repository, "rev-parse", "--git-common-dir"))
    key = hashlib.sha256(repr((good, bad, search.check, search.case)).encode()).hexdigest()[:16]
    return (common / "parity-bisect" / key).resolve()


@contextlib.contextmanager
def _worktree(repository: Path, folder: Path, commit: str) -> Iterator[Path]:
    """Gives a fresh worktree; those of searches that were killed go first."""
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


def _log(folder: Path) -> list[dict[str, str]]:
    """Returns the log; a last line that a kill cut short is no entry."""
    file, entries = folder / "log.jsonl", []
    for line in file.read_text().splitlines() if file.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            entries.append(json.loads(line))
    return entries


def _known(folder: Path, commit: str) -> Answer | None:
    return next((Answer(each["answer"]) for each in _log(folder) if each["commit"] == commit), None)


def _ends(
    search: Search, folder: Path, tree: Path, ends: tuple[str, str], tell: Callable[[str], None]
) -> Signature:
    """Checks that the bad commit fails and the good one passes; returns the failure."""
    good, bad = ends
    asked = folder / "question.json"
    if not asked.exists():
        tell(f"the bad commit {bad[:10]}")
        answer, signature = _check(search.check, search.case, tree, None)
        if answer is not Answer.FAILS or signature is None:
            raise ValueError(f"--bad {search.bad}: got a case that {answer}, expected one that fails")
        question = {
            "check": search.check,
            "case": search.case,
            "signature": dataclasses.asdict(signature),
        }
        _written(folder, bad, Answer.FAILS)
        partial = asked.with_suffix(".partial")
        partial.write_text(json.dumps(question))
        partial.replace(asked)
    if _known(folder, good) is None:
        tell(f"the good commit {good[:10]}")
        _git(tree, "checkout", "--quiet", "--detach", good)
        step(folder, tree)
    if (answer := _known(folder, good)) is not Answer.PASSES:
        raise ValueError(f"--good {search.good}: got a case that says {answer}, expected one that passes")
    return Signature.read(json.loads(asked.read_text())["signature"])


def _run(
    folder: Path, tree: Path, ends: tuple[str, str], tell: Callable[[str], None]
) -> tuple[Outcome, tuple[str, ...]]:
    """Lets git drive: every commit that is known already costs nothing."""
    good, bad = ends
    _git(tree, "bisect", "start", bad, good)
    words = [sys.executable, "-m", "parity.bisect.commit", str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_engine())}
    command = ["git", "bisect", "run", *words]
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(("Bisecting:", "parity:")):
                tell(line.strip())
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


def _engine() -> list[str]:
    """Returns what a child needs on its path to find the engine that is running."""
    return [str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def _confirmed(folder: Path, tree: Path, culprit: str, tell: Callable[[str], None]) -> bool:
    """Asks the culprit and the commit before it once more: a check that changes its mind names no culprit."""
    expected = {culprit: Answer.FAILS, _commit(tree, f"{culprit}~1"): Answer.PASSES}
    question = json.loads((folder / "question.json").read_text())
    for commit, answer in expected.items():
        tell(f"{commit[:10]} again")
        _git(tree, "checkout", "--quiet", "--detach", "--force", commit)
        again = _check(question["check"], question["case"], tree, Signature.read(question["signature"]))[0]
        if again is not answer and _known(folder, commit) is answer:
            return False
    return True


def step(folder: Path, tree: Path) -> int:
    """Judges the commit that is checked out, unless it is known; returns what ``git bisect run`` understands.

    Args:
        folder: of the search.
        tree: the worktree.
    """
    commit = _git(tree, "rev-parse", "HEAD")
    answer = _known(folder, commit)
    if answer is None:
        question = json.loads((folder / "question.json").read_text())
        answer, _ = _check(question["check"], question["case"], tree, Signature.read(question["signature"]))
        if _git(tree, "rev-parse", "HEAD") != commit:
            raise ValueError(f"worktree {tree}: another search has moved it on")
        _written(folder, commit, answer)
    return EXITS[answer]


def _written(folder: Path, commit: str, answer: Answer) -> None:
    with (folder / "log.jsonl").open("a") as log:
        log.write(f"{json.dumps({'commit': commit, 'answer': str(answer)})}\n")
        log.flush()
        os.fsync(log.fileno())


def _check(
    check: Sequence[str], case: str, tree: Path, signature: Signature | None
) -> tuple[Answer, Signature | None]:
    """Runs the check in the worktree; what leaves no report cannot be tested."""
    report = tree.parent / f"report-{tree.name}.json"
    report.unlink(missing_ok=True)
    words = [word.replace(REPORT, str(report)) for word in check]
    variables = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(tree), *_engine()]),
    }
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(words, cwd=tree, env=variables, capture_output=True, timeout=SECONDS, check=False)
    if not report.exists():
        return Answer.OTHER, None
    found = answer_of(json.loads(report.read_text()), case, signature)
    report.unlink()
    return found


if __name__ == "__main__":
    told = Path(sys.argv[1])
    code = step(told, Path.cwd())
    print(f"parity: {len(_log(told))} commits known, {shlex.quote(Path.cwd().name)} exits {code}", flush=True)
    sys.exit(code)
