"""Settings to make before the first ``import jax``, and the report's description of the environment."""

import gc
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

DEVICES = 8
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "chex", "libtpu", "pytest")
PLATFORMS = {"tpu": "tpu,cpu", "gpu": "cuda,cpu"}
YOUNG = 200_000
"""Number of new objects between garbage collections: imports make a million live ones, and scans take a seventh."""
COUNT_FLAG = "--xla_force_host_platform_device_count"
SECONDS = 30
"""Time limit of a git command."""


def prepare(backend: str = "cpu") -> None:
    """Chooses eight simulated CPU devices, unless the caller has chosen differently, and collects garbage less often.

    Does nothing once JAX is imported: by then its devices may exist.

    Args:
        backend: the backend of the run; JAX searches for accelerators only if the backend needs them.
    """
    if "jax" in sys.modules:
        return
    if gc.isenabled():
        gc.set_threshold(max(YOUNG, gc.get_threshold()[0]), *gc.get_threshold()[1:])
    os.environ.setdefault("JAX_PLATFORMS", PLATFORMS.get(backend, "cpu"))
    if os.environ["JAX_PLATFORMS"] == "cpu":  # libtpu then only compiles and need not search for a TPU
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
        os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "true")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # hides the partitioner's advice to developers
    flags = os.environ.get("XLA_FLAGS", "")
    if COUNT_FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {COUNT_FLAG}={DEVICES}".strip()


def version(package: str) -> str | None:
    """Returns the installed version of ``package``, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


class GitError(Exception):
    """Git failed, with the reason."""


def git(folder: Path, *words: str) -> str:
    """Returns the output of a git command in a folder, else GitError."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise GitError(f"git does not run ({error})") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"git {words[0]} has nothing on {words[-1]}"]
        raise GitError(lines[0])
    return done.stdout.strip()


def git_commit() -> str | None:
    """Returns the commit of the working directory, with ``+`` if it has changes; None outside git."""
    try:
        head, changes = git(Path(), "rev-parse", "HEAD"), git(Path(), "status", "--porcelain")
    except GitError:
        return None
    return f"{head}+" if changes else head


def describe_environment() -> dict[str, object]:
    """Returns versions, flags, devices and commit, ready for JSON."""
    import jax

    return {
        "python": platform.python_version(),
        "packages": {package: version(package) for package in PACKAGES},
        "flags": {name: os.environ.get(name) for name in ("XLA_FLAGS", "JAX_PLATFORMS", "LIBTPU_INIT_ARGS")},
        "devices": [str(device) for device in jax.devices()],
        "commit": git_commit(),
    }
