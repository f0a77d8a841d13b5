"""A memory of verdicts: what passed and of which nothing has changed is not decided again."""

import dataclasses
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.backends.cache import DiskCache, default_folder, digest
from parity.cases.case import Case
from parity.running.content import Contents, UnknownContentError, content_of_process, file_digest
from parity.running.run import PASSED, CaseResult
from parity.verdicts import channel_of

__all__ = ["Memory", "disagreement", "folder"]

SHARE = 0.1
"""Of what is remembered, the share that ``--verify-memory`` decides again; at least one case."""


def folder() -> Path:
    """Returns where verdicts are kept."""
    return default_folder() / "verdicts"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Verdicts by the content of their cases.

    Args:
        keys: ``{case id: key}`` of the cases that can be remembered.
        refused: ``{case id: why}`` of the others.
        sources: ``{file: digest}`` of the modules that any case reaches.
        cache: where entries lie.
    """

    keys: Mapping[str, str]
    refused: Mapping[str, str]
    sources: Mapping[str, str]
    cache: DiskCache

    @classmethod
    def of(cls, cases: Sequence[Case], asked: str) -> "Memory":
        """Returns the memory for cases as they are now, before any of them is run.

        Args:
            cases: on their backend.
            asked: all that a command was asked that a verdict depends on, as text.
        """
        cache = DiskCache(folder=folder())
        try:
            process = content_of_process()
        except UnknownContentError as why:
            return cls(keys={}, refused={case.id: str(why) for case in cases}, sources={}, cache=cache)
        contents, keys, refused, names = Contents(), {}, {}, set()
        for case in cases:
            try:
                content, reached = contents.of(case)
                keys[case.id] = digest([process, asked, case.id, content])
                names.update(reached)
            except (ValueError, OSError, SyntaxError, RecursionError) as why:
                refused[case.id] = str(why)
        files = [str(sys.modules[name].__file__) for name in sorted(names)]
        sources = {file: file_digest(file) for file in files}
        return cls(keys=keys, refused=refused, sources=sources, cache=cache)

    def recall(self, case: Case) -> CaseResult | None:
        """Returns what was decided, None where nothing was or something it read has changed."""
        entry = self.cache.load(self.keys[case.id]) if case.id in self.keys else None
        if not isinstance(entry, dict) or any(
            file_digest(path) != was for path, was in entry["read"].items()
        ):
            return None
        return CaseResult(
            case=case,
            reference=entry["reference"],
            candidate=entry["candidate"],
            verdict=PASSED,
            channels={name: channel_of(name, fields) for name, fields in entry["channels"].items()},
            seconds={},
            remembered=True,
        )

    def keep(self, result: CaseResult) -> None:
        """Remembers a result if it passed, with what it told; what did not pass is always decided again.

        Nor is kept what was decided while somebody edited a source: a worker may have read it before or after.
        """
        if (
            result.verdict != PASSED
            or result.remembered
            or result.case.id not in self.keys
            or result.read is None
        ):
            return
        if any(file_digest(file) != was for file, was in self.sources.items()):
            return
        channels = {name: dataclasses.asdict(one) for name, one in result.channels.items()}
        entry = {
            "reference": result.reference,
            "candidate": result.candidate,
            "channels": channels,
            "read": dict(result.read),
        }
        self.cache.store(self.keys[result.case.id], entry)

    def sample(self, recalled: Sequence[CaseResult]) -> set[str]:
        """Returns the ids of some that are remembered, to be decided again."""
        count = max(1, round(SHARE * len(recalled))) if recalled else 0
        return {result.case.id for result in random.SystemRandom().sample(list(recalled), count)}


def disagreement(remembered: CaseResult, fresh: CaseResult) -> str:
    """Returns in one sentence how a fresh result differs from the remembered one; empty where it does not."""
    before = {name: one.verdict for name, one in remembered.channels.items()}
    after = {name: one.verdict for name, one in fresh.channels.items()}
    changed = sorted(name for name in before | after if before.get(name) != after.get(name))
    if fresh.verdict == remembered.verdict and not changed:
        return ""
    channels = f" ({', '.join(changed)})" if changed else ""
    return f"{fresh.case.id}: remembered as {remembered.verdict}, decided again as {fresh.verdict}{channels}"
