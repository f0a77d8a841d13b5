"""Calls on a Ray cluster, or on a local Ray: each is a task with the resources that it declares.

Imports no JAX, because the environment of a worker must be set first.
"""

import contextlib
import functools
import logging
import os
import platform
import re
import secrets
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from parity.compare.backends.environment import PACKAGES, PLATFORMS, git_commit, prepare, version
from parity.compare.backends.worker import call
from parity.compare.backends.workers import GIB, POLL, RemoteError, WorkerError

OWN = "local"
"""In place of an address: a Ray that is started for the run and ends with it."""
ADDRESS = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
CONNECT_SECONDS = 5.0
STORE = 200 * 2**20
"""Bytes for objects: an outcome is small, and Ray's default store would take a third of the memory."""
NEEDS = 2 * GIB
"""Host memory that a case of the small sizes declares."""
TRIES = 3
"""Number of workers that one call may lose; then the call itself is the likely cause."""
SETTINGS = {
    "RAY_task_oom_retries": str(TRIES - 1),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray prints advice about it
}
ACCELERATORS = {
    "gpu": ("GPU", lambda count: {"num_gpus": count}),
    "tpu": ("TPU", lambda count: {"resources": {"TPU": count}}),
}
"""Backend -> Ray's name of the accelerator, and the options that declare it."""


def check_address(address: str) -> None:
    """Checks that a cluster can be reached; fails at once, while Ray would try for a minute.

    Raises:
        ValueError: Ray is not installed, the address has another form, or nothing answers.
    """
    _ray()
    if address in (OWN, "auto"):
        return
    found = ADDRESS.fullmatch(address)
    if not found:
        raise ValueError(
            f"--ray {address}: expected HOST:PORT of the head, auto, or local for a Ray of this machine's own; "
            "start parity on a machine of the cluster"
        )
    try:
        socket.create_connection((found["host"].strip("[]"), int(found["port"])), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"--ray {address}: nothing answers ({error}); ray status says where the head is"
        ) from error


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise ValueError('--ray: Ray is not installed; pip install "linen-nnx-parity[ray]"') from error
    return ray


@contextlib.contextmanager
def session(address: str, workers: int) -> Iterator[None]:
    """Connects to a cluster in this block; a local Ray ends with it.

    Args:
        address: address of the head, ``auto``, or `OWN`.
        workers: number of parallel calls of a local Ray; a cluster has its own count.

    Raises:
        ValueError: no cluster is there.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    ray = _ray()
    own = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": STORE}
    ending = signal.getsignal(signal.SIGTERM)
    with _own_things() if address == OWN else contextlib.nullcontext(), contextlib.ExitStack() as stack:
        stack.callback(ray.shutdown)
        try:
            with warnings.catch_warnings():
                # Ray forks to start its processes, which replace their program at once.
                warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
                options = own if address == OWN else {}
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"--ray {address}: {reason}; ray status says where the head is, "
                "and a cluster that asks for a token needs RAY_AUTH_MODE=token"
            ) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, ending)  # Ray sets its own handler, which leaves no report
        yield


@contextlib.contextmanager
def _own_things() -> Iterator[None]:
    """Gives a local Ray a folder for its logs and a token, and removes both at the end.

    A longer path is too long for its sockets; without a token it would leave one in the home folder.
    """
    with tempfile.TemporaryDirectory(prefix="parity-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        own = {
            "RAY_TMPDIR": folder,
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_worker_niceness": "0",  # as for our own workers; Ray's default yields to all other processes
        }
        added = {name: value for name, value in own.items() if name not in os.environ}
        os.environ.update(added)
        try:
            yield
        finally:
            for name in added:
                del os.environ[name]


def machines() -> list[Mapping[str, float]]:
    """Returns the resources of each machine of the cluster, by Ray's names."""
    return [node["Resources"] for node in _ray().nodes() if node["Alive"]]


def declared(backend: str, devices: int, has: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Returns the resources that a task declares, at most those of one machine of the cluster.

    Raises:
        ValueError: no machine has the accelerator.
    """

    def most(name: str) -> float:
        return max((machine.get(name, 0) for machine in has), default=0)

    options: dict[str, Any] = {"num_cpus": 1, "memory": min(NEEDS, most("memory"))}
    if backend not in ACCELERATORS:
        return options
    name, declare = ACCELERATORS[backend]
    if not most(name):
        raise ValueError(
            f"--backend {backend}: no machine of the Ray cluster has a {name}; add one, or use cpu"
        )
    # An accelerator belongs to one process: a worker that stays alive would keep it from the next.
    return {**options, **declare(min(devices, int(most(name)))), "max_calls": 1}


@functools.cache
def _task(calls: int) -> Any:
    """Returns the task; its worker ends after ``calls`` calls, or never if that is 0."""
    return _ray().remote(max_calls=calls)(attend)


def submit(
    backend: str, function: str, arguments: tuple, resources: Mapping[str, Any], seconds: float
) -> Any:
    """Starts a call of ``module:function`` in a Ray worker and returns its reference.

    Ray repeats it if the worker is lost, up to `TRIES` times.

    Args:
        backend: the backend that JAX uses there.
        resources: from `declared`.
        seconds: time after which a worker ends itself.
    """
    options = {"max_retries": TRIES - 1, **resources}
    task = _task(options.pop("max_calls", 0)).options(**options)
    return task.remote(here(), backend, function, arguments, seconds)


def wait_for_any(references: Sequence[Any]) -> list[Any]:
    """Waits a while; returns the references of calls that have ended."""
    return _ray().wait(references, num_returns=1, timeout=POLL)[0]


def outcome(reference: Any) -> Any:
    """Returns the result of a call that has ended.

    Raises:
        RemoteError: the function raised.
        WorkerError: each try lost its worker.
    """
    ray = _ray()
    try:
        kind, value = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise RemoteError(str(error.cause or error)) from error
    except ray.exceptions.RayError as error:
        raise WorkerError(f"{TRIES} Ray workers, the last lost ({type(error).__name__})") from error
    if kind == "raised":
        raise RemoteError(f"{value[0]}: {value[1]}")
    return value


CARRIED = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "XDG_CACHE_HOME")
DRIVERS = ("JAX_PLATFORMS", "TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD")
"""Variables that keep the driver from accelerators, and that the workers of a local Ray inherit."""


class Site(NamedTuple):
    """The properties that every machine of a cluster must share with the one that the run was started on.

    Args:
        folder: folder of the project.
        versions: of Python and the packages, and the commit of the project, by name.
        variables: environment variables to set.
    """

    folder: str
    versions: Mapping[str, str | None]
    variables: Mapping[str, str]


def here() -> Site:
    """Returns the site of this process."""
    folder, variables = str(Path.cwd()), {name: os.environ[name] for name in CARRIED if name in os.environ}
    return Site(folder, _versions(folder), variables)


@functools.lru_cache(maxsize=8)
def _versions(folder: str) -> dict[str, str | None]:
    """Returns the versions of the folder that this process is in, as of the first call.

    Uncommitted changes do not count: the run itself may write a report there.
    """
    packages = {name: version(name) for name in PACKAGES}
    commit = (git_commit() or "none").removesuffix("+")
    return {"python": platform.python_version(), **packages, "commit": commit}


def _enter(site: Site) -> str:
    """Changes to the folder of the project; returns the difference of this machine if there is one, else nothing."""
    if not Path(site.folder).is_dir():
        return f"got no folder {site.folder}, expected the project there; it lies at the same path on every machine"
    os.chdir(site.folder)
    versions = _versions(site.folder)
    differing = [name for name in versions if versions[name] != site.versions[name]]
    got, expected = (
        ", ".join(f"{name} {of[name]}" for name in differing) for of in (versions, site.versions)
    )
    advice = "install the same versions, and check out the same commit, everywhere"
    return f"got {got}, expected {expected}; {advice}" if differing else ""


def attend(site: Site, backend: str, function: str, arguments: tuple, seconds: float) -> tuple[str, Any]:
    """Makes a call in this process, a worker, and returns its end as `parity.compare.backends.worker.call` does.

    Args:
        site: the properties that this machine must have.
        function: ``module:function``, called with ``arguments`` and ``notify=``.
        seconds: time after which this process ends.
    """
    os.environ.update(site.variables)
    for name in DRIVERS if backend in PLATFORMS else ():
        os.environ.pop(name, None)
    prepare(backend)
    if why := _enter(site):
        return "raised", ("OtherMachineError", f"machine {platform.node()}: {why}")
    signal.alarm(int(seconds))
    try:
        return call(function, arguments, lambda phase: None)
    finally:
        signal.alarm(0)
