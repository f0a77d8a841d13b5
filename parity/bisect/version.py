"""The axis ``version``: the first failing version of a dependency, each overlaid on the installed packages.

A version is installed into a separate folder, with those of its requirements that the installed packages do not
satisfy. The environment of the search is never changed.
"""

import contextlib
import importlib.metadata
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from parity.bisect.axis import Status
from parity.bisect.history import Check, History, UntestableError
from parity.run.record import Bisect


def search_versions(
    check: Check,
    where: Path,
    requirement: str,
    *,
    notify: Callable[[str], None] = lambda words: None,
) -> Bisect:
    """Returns the first version that fails, or the first that passes if the oldest one fails.

    Args:
        requirement: package and range, such as ``jax>=0.10,<0.13``.
    """
    wanted = _requirement(requirement)
    versions = available(wanted)

    @contextlib.contextmanager
    def lay(version: str) -> Iterator[tuple[Path, list[str]]]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if Version(importlib.metadata.version(wanted.name)) == Version(version):
                yield where, []
                return
        with tempfile.TemporaryDirectory(prefix="parity-bisect-", ignore_cleanup_errors=True) as overlaid:
            overlay(wanted.name, version, Path(overlaid))
            yield where, [overlaid]

    def between(lows: Sequence[str], high: str) -> list[str]:
        return versions[max(map(versions.index, lows)) + 1 : versions.index(high) + 1]

    history = History("version", check, lay, notify)
    results = {version: history.test(version) for version in (versions[-1], versions[0])}
    if {result.status for result in results.values()} != {Status.PASSES, Status.FAILS}:
        words = ", ".join(f"{version} {results[version]}" for version in (versions[0], versions[-1]))
        raise ValueError(
            f"--search version: got {words}, expected one end that passes and one that fails; choose another range"
        )
    return history.search(versions[0], versions[-1], between)


def available(wanted: Requirement) -> list[str]:
    """Returns the versions in range for this Python from pip's index, oldest first; ValueError for fewer than two."""
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
    """Installs one version into a folder, with its requirements that the installed packages do not satisfy."""
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
