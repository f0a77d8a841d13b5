"""Cases side by side, each in a worker process: a side that crashes or hangs is a verdict of its case."""

import collections
import dataclasses
import functools
import gc
import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any

from parity.cases.case import Case
from parity.channels import ALL
from parity.compare.backends.compiler import Resources
from parity.compare.backends.workers import POLL, RemoteError, Worker, WorkerError
from parity.compare.placement import place
from parity.compare.session import Session
from parity.run.outside import opened, watch
from parity.run.run import SELDOM, CaseResult, error_result, run_case
from parity.verdicts import ANY_RUNG, ChannelResult, Requirement

__all__ = ["CASE_SECONDS", "Outcome", "Plan", "decide", "run_in_workers", "serve"]

CASE_SECONDS = 3_600.0
"""Wall time after which a case is given up; a compile in it has a shorter limit of its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How a worker finds the cases and runs them: what the command line said, as plain data.

    Args:
        find: ``module:function`` that returns the cases, given ``arguments``.
        arguments: of ``find``.
        backend: where the cases are placed, each when its turn comes: it may not fit the devices of another.
        channels: what to compare.
        paranoid: compile and run also what is proved.
        required: rungs that cases of one structure may rest on.
        resources: what the run may take; each worker gets its share.
        watched: folders whose files are known: what is opened elsewhere is noticed; empty for nothing.
    """

    find: str
    arguments: tuple[Any, ...]
    backend: str = "cpu"
    channels: tuple[str, ...] = ALL
    paranoid: bool = False
    required: Requirement = ANY_RUNG
    resources: Resources = dataclasses.field(default_factory=Resources)
    watched: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """A `CaseResult` without its case, which holds functions that no other process can be sent."""

    reference: str
    candidate: str
    verdict: str
    channels: dict[str, ChannelResult]
    seconds: dict[str, float]
    read: Mapping[str, str] | None = None

    @classmethod
    def of(cls, result: CaseResult) -> "Outcome":
        """Returns what can be sent of a result."""
        return cls(**{field.name: getattr(result, field.name) for field in dataclasses.fields(cls)})

    def on(self, case: Case) -> CaseResult:
        """Returns the result again."""
        return CaseResult(
            case=case, **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        )


@functools.cache
def _cases(find: str, arguments: tuple) -> dict[str, Case]:
    module, _, name = find.partition(":")
    return {case.id: case for case in getattr(importlib.import_module(module), name)(*arguments)}


@functools.cache
def _bench(plan: Plan, tell: Callable[[str], None]) -> Session:
    compiler = plan.resources.compiler()
    return Session(paranoid=plan.paranoid, required=plan.required, compiler=compiler, tell=tell)


def serve(plan: Plan, id: str, tell: Callable[[str], None]) -> Outcome:
    """Runs one case in this process, a worker, which keeps builds and sides for the next.

    Args:
        plan: how.
        id: of the case.
        tell: told of each phase.
    """
    gc.set_threshold(SELDOM, *gc.get_threshold()[1:])  # a worker does nothing else: between cases, too
    return Outcome.of(decide(plan, id, tell))


def decide(plan: Plan, id: str, tell: Callable[[str], None]) -> CaseResult:
    """Runs one case in this process, as `serve` does, and returns the result with the case as it was placed."""
    if plan.watched:
        watch()
    (case,) = place([_cases(plan.find, plan.arguments)[id]], plan.backend)
    result = run_case(case, _bench(plan, tell), plan.channels)
    return dataclasses.replace(result, read=opened(plan.watched)) if plan.watched else result


class _Desk:
    """A worker with the cases it goes through; they share builds, so they stay together."""

    def __init__(self):
        self.worker = Worker()
        self.todo: collections.deque[Case] = collections.deque()
        self.case: Case | None = None

    def begin(self, plan: Plan) -> Case:
        """Starts the next case."""
        self.case = self.todo.popleft()
        self.worker.begin("parity.run.parallel:serve", (plan, self.case.id))
        return self.case

    def result(self) -> CaseResult | None:
        """Returns the result of the case, None while it is at work."""
        assert self.case is not None
        try:
            ended, outcome = self.worker.poll(0)
            if self.worker.seconds > CASE_SECONDS:
                raise WorkerError(f"exceeded {CASE_SECONDS:g} s")
            return outcome.on(self.case) if ended else None
        except (WorkerError, RemoteError) as error:
            phase = self.worker.phase or "building the two sides"
            self.worker.kill()
            self.worker = Worker()
            return error_result(self.case, phase, error)


def run_in_workers(
    cases: Sequence[Case], plan: Plan, progress: Callable[[Case], None] = lambda case: None
) -> Iterator[CaseResult]:
    """Yields the result of each case as it ends, which may not be in their order.

    Args:
        cases: what to run.
        plan: how a worker finds and runs them.
        progress: told of each case before it starts.
    """
    groups = collections.deque(
        list(group) for _, group in itertools.groupby(cases, lambda case: case.id.split("/")[0])
    )
    size = min(plan.resources.workers, len(groups))
    shared = dataclasses.replace(plan, resources=plan.resources.share(size))
    desks = [_Desk() for _ in range(size)]
    try:
        while True:
            for desk in desks:
                if desk.case is None and (desk.todo or groups):
                    desk.todo = desk.todo or collections.deque(groups.popleft())
                    progress(desk.begin(shared))
            busy = [desk for desk in desks if desk.case is not None]
            if not busy:
                return
            wait([desk.worker.channel for desk in busy], POLL)
            for desk in busy:
                if (result := desk.result()) is not None:
                    desk.case = None
                    yield result
    finally:
        for desk in desks:
            desk.worker.kill()
