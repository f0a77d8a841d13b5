"""``parity doctor``: versions, devices, backends, and remedies for missing ones."""

from typing import TYPE_CHECKING, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from parity.cli.options import PARITY, USAGE, console, make_request

if TYPE_CHECKING:
    from parity.compare.backends.compiler import Resources

NARROW = 80


class Check(NamedTuple):
    """One line of the doctor: its subject, its state, how to get a missing part, and True if parity cannot run."""

    name: str
    found: str
    remedy: str = ""
    needed: bool = False


def command() -> None:
    """Show versions, devices and backends, and how to get missing ones."""
    screen, checks = console(NARROW), diagnose(make_request().resources)
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in checks:
        table.add_row(check.name, check.found, Text(check.remedy, "yellow"))
    screen.print(table)
    raise typer.Exit(USAGE if any(check.needed for check in checks) else PARITY)


def diagnose(resources: "Resources") -> list[Check]:
    """Returns versions, devices, backends and limits of a run, each with a remedy if it is missing."""
    import jax

    from parity.compare.backends.aot import missing_compiler
    from parity.compare.backends.environment import DEVICES, PACKAGES, version
    from parity.compare.backends.registry import known_backends
    from parity.compare.backends.workers import GIB
    from parity.run.verdict_cache import folder

    remedies = {"libtpu": f"{missing_compiler()} brings the TPU compiler, which aot:TOPOLOGY needs"}
    checks = []
    for package in PACKAGES:
        found = version(package)
        remedy = "" if found else remedies.get(package, f"pip install {package}")
        checks.append(
            Check(package, found or "not installed", remedy, needed=not found and package != "libtpu")
        )
    devices = len(jax.devices("cpu"))
    few = devices < DEVICES
    remedy = f"set XLA_FLAGS=--xla_force_host_platform_device_count={DEVICES}" if few else ""
    return [
        *checks,
        Check("cpu devices", f"{devices} simulated", remedy, needed=few),
        Check("default platform", jax.default_backend()),
        Check("backends", ", ".join(known_backends())),
        Check("workers", str(resources.workers)),
        Check("compile limits", f"{resources.memory / GIB:.1f} GiB in all, {resources.seconds:g} s each"),
        Check("compile cache", str(resources.cache or "none")),
        Check("verdict cache", str(folder())),
    ]
