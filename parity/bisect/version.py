"""The axis ``version``: the first failing version of a dependency, each overlaid on the installed packages.

A version is installed into a separate folder, with those of its requirements that the installed packages do not
satisfy. The environment of the search is never changed.
"""

import contextlib
import dataclasses
import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from parity.bisect.axis import Status
from parity.bisect.check import Check, Found, Outcome, Places, UntestableError
from parity.compare.backends.cache import default_folder, digest

__all__ = ["VersionSearch", "available", "overlay", "search_versions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class VersionSearch:
    """A search over versions.

    Args:
        requirement: package and range, such as ``jax>=0.10,<0.13``.
        check: repeated with each version.
        where: its working directory.
        kept: folder for versions and results during the search.
    """

    requirement: str
    check: Check
    where: Path
    kept: Path = dataclasses.field(default_factory=lambda: default_folder() / "bisect")


def search_versions(search: VersionSearch, notify: Callable[[str], None] = lambda words: None) -> Found:
    """Returns the first version that fails, or the first that passes if the oldest one fails.

    Args:
        search: package, range and check.
        notify: called with the progress, as text.

    Raises:
        ValueError: no such package or versions, or the oldest and the newest have the same result.
    """
    wanted = _requirement(search.requirement)
    versions = available(wanted)
    folder = search.kept / digest([search.requirement, repr(search.check), str(search.where.resolve())])[:16]

    @contextlib.contextmanager
    def lay(version: str) -> Iterator[tuple[Path, list[str]]]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if Version(importlib.metadata.version(wanted.name)) == Version(version):
                yield search.where, []
                return
        overlaid = folder / f"{wanted.name}-{version}"
        shutil.rmtree(overlaid, ignore_errors=True)
        try:
            overlay(wanted.name, version, overlaid)
            yield search.where, [str(overlaid)]
        finally:
            shutil.rmtree(overlaid, ignore_errors=True)

    return _between(versions, Places(folder, search.check, lay, lambda name: notify(f"{wanted.name} {name}")))


def available(wanted: Requirement) -> list[str]:
    """Returns the versions in range for this Python, oldest first, from pip's index.

    Args:
        wanted: package and range.

    Raises:
        ValueError: pip finds none, or fewer than two in range.
    """
    words = ["index", "versions", wanted.name] + ["--pre"] * bool(wanted.specifier.prereleases)
    said = _pip(*words)
    listed = re.search(r"^Available versions: (.*)$", said, re.MULTILINE)
    versions = [each.strip() for each in listed[1].split(",")] if listed else []
    chosen = sorted(wanted.specifier.filter(versions), key=Version)
    if len(chosen) < 2:
        some = f"{', '.join(versions[:5])}, ..." if versions else "none"
        raise ValueError(
            f"--search version {wanted}: got {len(chosen)} versions, expected two at least; there are {some}"
        )
    return chosen


def overlay(name: str, version: str, folder: Path) -> None:
    """Installs one version into a folder, with its requirements that the installed packages do not satisfy.

    Args:
        name: name of the package.
        version: version of the package.
        folder: to be put on the import path, before the installed packages.

    Raises:
        ValueError: pip cannot install a package.
    """
    waiting, made = [f"{name}=={version}"], set()
    while waiting:
        _ = _pip("install", "--quiet", "--no-deps", "--upgrade", "--target", str(folder), *waiting)
        waiting = []
        for package in importlib.metadata.distributions(path=[str(folder)]):
            if package.name in made:
                continue
            made.add(package.name)
            waiting += [text for text in package.requires or () if not _met(Requirement(text), folder)]


def _met(wanted: Requirement, folder: Path) -> bool:
    """True if a requirement does not apply to this machine, or a folder or the installed packages satisfy it."""
    if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
        return True
    present = importlib.metadata.distributions(path=[str(folder), *sys.path], name=wanted.name)
    first = next(iter(present), None)
    return first is not None and wanted.specifier.contains(first.version, prereleases=True)


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        rule = "a package and a range, such as jax>=0.10,<0.13"
        raise ValueError(f"--search version: got {text!r}, expected {rule}") from error


def _pip(*words: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")] or [
            "ERROR: no words"
        ]
        raise UntestableError(f"pip {words[0]}: got {lines[-1].removeprefix('ERROR: ')}")
    return ended.stdout


def _between(versions: Sequence[str], places: Places) -> Found:
    """Bisects a range whose ends differ; skips versions that cannot be tested."""
    low, high = 0, len(versions) - 1
    last, first = places(versions[high]), places(versions[low])
    if {first, last} != {Status.PASSES, Status.FAILS}:
        words = ", ".join(f"{versions[at]} {places.said(versions[at])}" for at in (low, high))
        raise ValueError(
            f"--search version: got {words}, expected one end that passes and one that fails; choose another range"
        )
    skipped: set[int] = set()
    while rest := [at for at in range(low + 1, high) if at not in skipped]:
        middle = min(rest, key=lambda at: abs(2 * at - low - high))
        status = places(versions[middle])
        if status is first:
            low = middle
        elif status is last:
            high = middle
        else:
            skipped.add(middle)
    outcome = Outcome.CULPRIT if high - low == 1 else Outcome.SEVERAL
    culprits = versions[low + 1 : high + 1]
    return places.found(outcome, culprits, (versions[low], versions[high]), fixed=last is Status.PASSES)
