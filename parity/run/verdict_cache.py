"""Verdict cache: reuses the result of a passed case if none of its inputs has changed."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax
import msgspec

from parity.cases.case import Case
from parity.cases.settings import find_settings, make_importable
from parity.compare.backends.cache import DiskCache, default_folder, digest
from parity.run.manifest import Manifest, TooManyFilesError, differing, digest_at, project_of, watch
from parity.run.record import PASSED, CaseResult
from parity.run.request import CacheMode, Request
from parity.verdicts import plain


def folder() -> Path:
    """Returns the folder where verdicts are kept."""
    return default_folder() / "verdicts"


def take_manifest(request: Request) -> Manifest | None:
    """Returns the manifest of a request's project, and begins to watch files; None if the request ignores the cache."""
    if request.cache is CacheMode.IGNORE:
        return None
    settings = find_settings(request.start)
    make_importable(request.start, settings)  # the import path is a part of the manifest
    caches = [default_folder(), *filter(None, [settings.resources.get("cache"), request.resources.cache])]
    root = project_of(settings.root or request.start)
    manifest = Manifest.of(root, settings.cache_ignores, [*caches, *request.written])
    watch()
    return manifest


class VerdictCache:
    """Verdicts under one key: the digest of all inputs, see `parity.run.manifest`.

    Args:
        manifest: taken before any code of the project was imported; None to find and store nothing.
        options: all options of a command that a verdict depends on, as text.
    """

    def __init__(self, manifest: Manifest | None, options: str, cache: DiskCache | None = None):
        self.manifest = manifest
        if manifest:
            self._cache = cache or DiskCache(folder=folder())
            devices = [f"{one} {one.device_kind} {one.client.platform_version}" for one in jax.devices()]
            self._key = digest([manifest.key, options, *devices])
        self._keys: dict[str, str] = {}
        self._known: dict[str, CaseResult] = {}
        self._complete = False
        self._passed: list[CaseResult] = []
        self._refused: list[str] = []

    def key(self, case: Case) -> str:
        """Returns the key of a case; a waiver that expires changes it."""
        return digest([self._key, case.id, *(str(waiver.expired) for waiver in case.accept.waivers)])

    def recall(self, case: Case) -> CaseResult | None:
        """Returns the stored result; None if there is none, or if a file outside the project changed."""
        entry = self._cache.load(self.key(case))
        if not isinstance(entry, dict) or any(digest_at(path) != was for path, was in entry["read"].items()):
            return None
        return dataclasses.replace(msgspec.convert(entry["result"], CaseResult), remembered=True)

    def look_up(self, cases: Sequence[Case], mode: CacheMode) -> None:
        """Finds the stored results of the cases, unless all verdicts are to be computed again."""
        if self.manifest:
            self._keys = {case.id: self.key(case) for case in cases}
        if self.manifest and mode is not CacheMode.REFRESH:
            self._known = {case.id: result for case in cases if (result := self.recall(case))}
        self._complete = len(self._known) == len(cases)

    def reused(self, case: Case) -> CaseResult | None:
        """Returns the result that was looked up; None if the case must run."""
        return self._known.get(case.id)

    def keep(self, result: CaseResult) -> None:
        """Takes the result of a case that ran, to be stored by `store` if it passed."""
        if result.verdict == PASSED and not result.remembered and result.read is not None:
            self._passed.append(result)

    def refuse(self, reasons: Sequence[str]) -> None:
        """Stops storing results if there are reasons: this process may differ from the state that the key describes."""
        self._refused += reasons

    def store(self) -> list[str]:
        """Stores the passed cases, unless something changed since the run began; returns the changes.

        A result that was computed during a change may depend on either state.
        """
        if not (self._passed and self.manifest):
            return []
        try:
            changed = self._refused or self.manifest.changed(self.manifest.again())
        except TooManyFilesError as why:  # the run made them
            return [str(why)]
        for result in () if changed else self._passed:
            kept = plain(dataclasses.replace(result, seconds={}))
            self._cache.store(self._keys[result.id], {"result": kept, "read": result.read})
        return changed

    def since_last(self) -> list[str]:
        """Returns the labels of the changes since the last run in this project, and records the present state.

        None count if the results of all cases were found.
        """
        if self.manifest is None:
            return []
        cache = DiskCache(folder=default_folder() / "latest")
        key = digest(["manifest", str(self.manifest.project)])
        before, now = cache.load(key), self.manifest.digests
        cache.store(key, now)
        return [] if self._complete or not isinstance(before, dict) else differing(before, now)
