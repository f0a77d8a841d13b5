"""A request: the cases to run and how to run them. One object for the command line, pytest and worker processes."""

import dataclasses
import enum
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from parity.builds.meshes import MeshSpec
from parity.cases.case import Case, select
from parity.cases.settings import collect, find_settings
from parity.channels import ALL
from parity.compare.backends.backend import Backend
from parity.compare.backends.compiler import Compiler, Resources
from parity.compare.backends.environment import PLATFORMS
from parity.compare.backends.registry import find
from parity.compare.placement import place
from parity.compare.session import Session
from parity.verdicts import ANY_RUNG, Requirement

Item = TypeVar("Item")


class CacheMode(enum.StrEnum):
    """Use of cached verdicts: ignore them, reuse them, or recompute all."""

    IGNORE = "ignore"
    REUSE = "reuse"
    REFRESH = "refresh"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One part of a run: every ``of``-th case, from the ``number``-th on.

    Args:
        places: positions of its finished cases among all cases.
        total: number of cases of all parts.
    """

    number: int
    of: int
    places: tuple[int, ...] = ()
    total: int = 0

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Returns the part that a text such as ``3/8`` names; ValueError for another form."""
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        number, of = map(int, found.groups()) if found else (0, 0)
        if not 1 <= number <= of:
            raise ValueError(f"--shard {text!r}: expected a part of all, such as 1/8 up to 8/8")
        return cls(number, of)

    def take(self, items: Sequence[Item]) -> list[Item]:
        """Returns the part's share of all items, interleaved, so that slow neighbours fall to different parts."""
        return list(items[self.number - 1 :: self.of])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The cases to run and how to run them; plain data, which is sent to worker processes unchanged.

    Args:
        start: folder from which settings and pairs are found.
        settings: config fields to set in every case.
        prove_exact: if True, cases are proved equal in exact arithmetic that do not ask for it, too.
        required: sufficient rungs for cases of one structure.
        workers: number of parallel cases; None for automatic.
        ray: the Ray cluster whose workers run the cases, see `parity.compare.backends.ray_cluster`; None for none.
        written: files that the run itself writes, such as its report: no verdict depends on them.
        context: further inputs of a verdict, as text: how pytest was called, because conftest files may do anything.
        watched: folders whose files the manifest has; files opened elsewhere are recorded. Empty to record none.
    """

    start: Path = dataclasses.field(default_factory=Path.cwd)
    select: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    full_size: bool = False
    shard: Shard | None = None
    backend: str = "cpu"
    channels: tuple[str, ...] = ALL
    paranoid: bool = False
    prove_exact: bool = False
    required: Requirement = ANY_RUNG
    workers: int | None = None
    processes: int = 1
    ray: str | None = None
    resources: Resources = dataclasses.field(default_factory=Resources)
    fail_fast: bool = False
    cache: CacheMode = CacheMode.IGNORE
    written: tuple[Path, ...] = ()
    context: str = ""
    watched: tuple[str, ...] = ()

    @classmethod
    def of(cls, start: Path, workers: int | None = None, **fields: Any) -> "Request":
        """Returns a request with the limits of ``[tool.parity]``; ``workers`` overrides its number."""
        limits = find_settings(start).resources
        limits |= {"workers": workers} if workers else {}
        return cls(start=start, workers=workers, resources=Resources(**limits), **fields)

    @property
    def options(self) -> str:
        """All inputs of a verdict except the state of the project, as text."""
        names = (
            "pairs",
            "backend",
            "settings",
            "full_size",
            "channels",
            "paranoid",
            "prove_exact",
            "required",
            "context",
        )
        return repr([(name, getattr(self, name)) for name in names])

    def share(self, parts: int) -> "Request":
        """Returns the request for one of several processes that share the machine."""
        return dataclasses.replace(self, resources=self.resources.share(parts))

    def find_backend(self) -> Backend:
        """Returns the backend, which compiles within the resources; call it once per process."""
        return find(self.backend, Compiler(self.resources))

    @property
    def is_elsewhere(self) -> bool:
        """True if the devices are those of other machines, so that meshes are fitted there."""
        return self.ray is not None and self.backend in PLATFORMS

    def collect_cases(self, backend: Backend) -> list[Case]:
        """Returns the cases as the pairs define them; a worker process finds them in this way, too."""
        devices = backend.topology.devices if self.full_size and backend.topology else None
        cases = collect(self.pairs, dict(self.settings), self.start, devices=devices, select=self.select)[1]
        given = [("--pair", pair) for pair in self.pairs]
        given += [("--set", f"{name}={value}") for name, value in self.settings]
        options = shlex.join(word for option in given for word in option)
        if self.prove_exact:
            cases = [case.with_accept(prove_exact=True) for case in cases]
        return [case.with_placement(options=options) for case in cases] if options else cases

    def select_cases(self, backend: Backend) -> list[Case]:
        """Returns the selected cases, placed on the backend; ValueError if a part of the request cannot be used."""
        if not self.is_elsewhere:
            backend.fit(MeshSpec())  # reports missing parts before anything is imported or built
        if self.full_size and not backend.topology:
            raise ValueError(
                f"--full-size: got backend {self.backend}, expected a slice such as aot:v5p:2x2x1; "
                "the published sizes fit no laptop"
            )
        cases = select(self.collect_cases(backend), self.select)
        if self.is_elsewhere:
            return [case.with_placement(backend=self.backend) for case in cases]
        cases = place(cases, backend)
        if cases and all(case.placement.too_few_devices for case in cases):
            raise ValueError(cases[0].placement.too_few_devices)
        return cases

    def open_session(self, backend: Backend, notify: Callable[[str], None] = lambda phase: None) -> Session:
        """Returns a session with the options of the request; ``notify`` gets each phase that begins, as text."""
        return Session(paranoid=self.paranoid, required=self.required, backend=backend, notify=notify)

    def open_cases(self) -> tuple[list[Case], Session]:
        """Returns the cases and a session for them, for a command that runs no channel itself."""
        backend = self.find_backend()
        cases = self.select_cases(backend)
        return self.shard.take(cases) if self.shard else cases, self.open_session(backend)
