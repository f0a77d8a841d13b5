"""Diagnosis of this machine: packages, devices and limits, with remedies."""

import dataclasses

import jax

from parity.compare.backends.aot import missing_compiler
from parity.compare.backends.cache import DiskCache
from parity.compare.backends.compiler import Resources
from parity.compare.backends.environment import DEVICES, PACKAGES, version
from parity.compare.backends.registry import known_backends
from parity.compare.backends.workers import GIB
from parity.run.verdict_cache import folder

__all__ = ["Check", "diagnose"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the doctor.

    Args:
        name: subject of the check.
        found: its state.
        remedy: how to get a missing part; empty if none is missing.
        needed: True if parity cannot run without it.
    """

    name: str
    found: str
    remedy: str = ""
    needed: bool = False


def diagnose(resources: Resources | None = None) -> list[Check]:
    """Returns versions, devices, backends and limits of a run, each with a remedy if it is missing.

    Args:
        resources: limits of a run; the default ones if None.
    """
    remedies = {"libtpu": f"{missing_compiler()} brings the TPU compiler, which aot:TOPOLOGY needs"}
    checks = []
    for package in PACKAGES:
        found, needed = version(package), package != "libtpu"
        remedy = "" if found else remedies.get(package, f"pip install {package}")
        checks.append(
            Check(name=package, found=found or "not installed", remedy=remedy, needed=needed and not found)
        )
    devices = jax.devices("cpu")
    few = len(devices) < DEVICES
    remedy = f"set XLA_FLAGS=--xla_force_host_platform_device_count={DEVICES}" if few else ""
    checks.append(Check(name="cpu devices", found=f"{len(devices)} simulated", remedy=remedy, needed=few))
    checks.append(Check(name="default platform", found=jax.default_backend()))
    checks.append(Check(name="backends", found=", ".join(known_backends())))
    return checks + _taken(resources or Resources())


def _verdicts() -> str:
    entries = DiskCache(folder=folder()).entries()
    return f"{folder()}: {len(entries)} cases, {sum(size for _, size, _ in entries) / 2**20:.1f} MiB"


def _taken(resources: Resources) -> list[Check]:
    limit = f"{resources.memory / GIB:.1f} GiB in all, {resources.seconds:g} s each"
    cache = "none"
    if resources.cache:
        entries = DiskCache(folder=resources.cache).entries()
        size = sum(size for _, size, _ in entries) / 2**20
        cache = f"{resources.cache}: {len(entries)} programs, {size:.1f} MiB"
    return [
        Check(name="workers", found=str(resources.workers)),
        Check(name="limits of aot compiles", found=limit),
        Check(name="cache of aot compiles", found=cache),
        Check(name="memory of verdicts", found=_verdicts()),
    ]
