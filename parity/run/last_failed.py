"""The cases that did not pass when they last ran in a project, for ``--last-failed``."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from parity.cases.settings import find_settings
from parity.compare.backends.cache import DiskCache, default_folder, digest
from parity.run.run import CaseResult

__all__ = ["LastFailed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LastFailed:
    """The cases of a project that did not pass, kept from run to run.

    Args:
        key: key of the project and of the request.
        cache: where the ids are stored.
    """

    key: str
    cache: DiskCache

    @classmethod
    def of(cls, start: Path, asked: Any) -> "LastFailed":
        """Returns the record of the project that a folder is in.

        Args:
            start: the folder.
            asked: options that distinguish runs of the same cases, such as the backend.
        """
        root = find_settings(start).root or start
        folder = default_folder() / "latest"
        return cls(key=digest([str(root.resolve()), repr(asked)]), cache=DiskCache(folder=folder))

    def failed(self) -> frozenset[str] | None:
        """Returns the ids of the cases that did not pass; None if nothing has run yet."""
        found = self.cache.load(self.key)
        return None if not isinstance(found, list) else frozenset(map(str, found))

    def keep(self, results: Iterable[CaseResult]) -> None:
        """Stores results; cases that did not run this time keep their earlier ones."""
        results = list(results)
        ran = {result.case.id for result in results}
        before = (self.failed() or frozenset()) - ran
        if results:
            self.cache.store(self.key, sorted(before | {one.case.id for one in results if one.blocking}))
