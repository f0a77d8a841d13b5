"""The inside of a Ray worker: makes the driver's call, and reports its phases; see `ray_cluster`.

Imports no JAX, because the environment must be set first.
"""

import dataclasses
import functools
import os
import platform
import queue
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from parity.compare.backends.environment import PACKAGES, PLATFORMS, git_commit, prepare, version
from parity.compare.backends.worker import call

__all__ = ["Site", "attend", "here"]

CARRIED = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "XDG_CACHE_HOME")
DRIVERS = ("JAX_PLATFORMS", "TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD")
"""Variables that keep the driver from accelerators, and that the workers of a local Ray inherit."""
_SAID: "queue.SimpleQueue[tuple[str, Any]]" = queue.SimpleQueue()


class OtherMachineError(RuntimeError):
    """A machine of the cluster differs from the one that the run was started on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Site:
    """The properties that every machine of a cluster must share with the one that the run was started on.

    Args:
        folder: folder of the project.
        versions: of Python and the packages, by name.
        variables: environment variables to set.
        commit: commit of the project; None outside git.
    """

    folder: str
    versions: Mapping[str, str | None]
    variables: Mapping[str, str]
    commit: str | None


def here() -> Site:
    """Returns the site of this process."""
    return Site(
        folder=str(Path.cwd()),
        versions=_versions(),
        variables={name: os.environ[name] for name in CARRIED if name in os.environ},
        commit=_commit(str(Path.cwd())),
    )


@functools.lru_cache(maxsize=8)
def _commit(folder: str) -> str | None:
    """Returns the commit of the folder that this process is in, as of the first call.

    Uncommitted changes do not count: the run itself may write a report there.
    """
    found = git_commit()
    return found.removesuffix("+") if found else None


def _versions() -> dict[str, str | None]:
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def _settle(site: Site) -> None:
    """Changes to the folder of the project.

    Raises:
        OtherMachineError: this machine lacks it, has other versions, or another commit there.
    """
    where = f"machine {platform.node()}"
    differ = [
        (name, got, site.versions[name]) for name, got in _versions().items() if got != site.versions[name]
    ]
    if differ:
        got = ", ".join(f"{name} {found}" for name, found, _ in differ)
        expected = ", ".join(f"{name} {wanted}" for name, _, wanted in differ)
        raise OtherMachineError(
            f"{where}: got {got}, expected {expected}; install the same versions everywhere"
        )
    if not Path(site.folder).is_dir():
        raise OtherMachineError(
            f"{where}: got no folder {site.folder}, expected the project there; "
            "it lies at the same path on every machine"
        )
    os.chdir(site.folder)
    if (commit := _commit(site.folder)) != site.commit:
        raise OtherMachineError(
            f"{where}: got commit {commit} in {site.folder}, expected {site.commit}; check out the same everywhere"
        )


def _notify(phase: str) -> None:
    _SAID.put(("phase", phase))


def attend(site: Site, backend: str, function: str, arguments: tuple) -> Iterator[tuple[str, Any]]:
    """Yields ``("phase", words)`` during a call, then its end as `parity.compare.backends.worker.call` returns it.

    Args:
        site: the properties that this machine must have.
        backend: the backend that JAX uses.
        function: ``module:function``, called with ``arguments`` and ``notify=``.
        arguments: its arguments.
    """
    os.environ.update(site.variables)
    for name in DRIVERS if backend in PLATFORMS else ():
        os.environ.pop(name, None)
    prepare(backend)
    yield "phase", ""

    def work() -> None:
        try:
            _settle(site)
        except OtherMachineError as error:
            _SAID.put(("raised", (type(error).__name__, str(error))))
        else:
            _SAID.put(call(function, arguments, _notify))

    threading.Thread(target=work, daemon=True).start()
    kind = "phase"
    while kind == "phase":
        kind, value = _SAID.get()
        yield kind, value
