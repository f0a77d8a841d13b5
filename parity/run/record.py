"""The record of a run: results of cases, their counts, and the judgement of a gate; made from JSON and into JSON."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parity.cases.accepted import Waiver
from parity.cases.case import Case
from parity.channels import Aspect, of_aspect
from parity.channels.channel import ONE_PROGRAM
from parity.channels.tree import UNNAMED
from parity.compare.origin.result import SearchResult
from parity.run.explain import SEVERITY, Explanation, blocking, explain
from parity.run.request import Shard
from parity.verdicts import OPTIONAL, UNWRITTEN, ChannelResult, Finding, Row, Verdict, plain

SCHEMA = 1
PASSED = "passed"
VERDICTS = (PASSED, "failed", "vacuous", "error", "open", "unproved", "skipped")
PROOFS = frozenset({Verdict.PROVED, Verdict.REORDERED})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bisect:
    """The results of the searches for the cause of a failure, see `parity.bisect.report`.

    Args:
        signature: the failure; None if nothing fails.
        ambiguous: True if two runs of the case disagree.
    """

    schema: int = SCHEMA
    case: str
    signature: Any = None
    ambiguous: bool = False
    sentence: str
    axes: tuple[SearchResult, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class CaseResult:
    """The result of a case.

    Args:
        mesh, candidate_mesh: meshes of both sides; the candidate's is empty if it is the same.
        asked: the mesh in the id, if the backend reduced it.
        verdict: ``passed``, which is proved or measured, ``failed``, ``vacuous``, ``error``, ``open``, ``skipped``,
            or ``unproved`` if nothing differs, but neither a proof nor a run shows that values agree.
        numbers_only: True if it passed by its numbers only: a proof was tried, and the programs differ.
        remembered: True if an earlier run computed it, see `parity.run.verdict_cache`.
        channels: by name, in the order of the channels.
        seconds: per phase, and ``other``; empty if cached.
        read: ``{path: digest}`` of files outside the project that this process opened so far; None if not watched.
    """

    id: str
    reference: str = ""
    candidate: str = ""
    program: str
    mesh: str
    candidate_mesh: str = dataclasses.field(default="", metadata=OPTIONAL)
    asked: str = dataclasses.field(default="", metadata=OPTIONAL)
    options: str = dataclasses.field(default="", metadata=OPTIONAL)
    backend: str
    verdict: str
    numbers_only: bool = dataclasses.field(default=False, metadata=OPTIONAL)
    remembered: bool = dataclasses.field(default=False, metadata=OPTIONAL)
    channels: dict[str, ChannelResult]
    seconds: dict[str, float]
    bisect: Bisect | None = dataclasses.field(default=None, metadata=OPTIONAL)
    read: Mapping[str, str] | None = dataclasses.field(default=None, metadata=UNWRITTEN)

    def __post_init__(self):
        for name, channel in self.channels.items():
            if channel.name != name:  # read from JSON
                self.channels[name] = dataclasses.replace(channel, name=name)

    def __repr__(self) -> str:
        """Returns the id and the verdict: a notebook shows the results of `assert_twins`."""
        return f"<{type(self).__name__} {self.id}: {self.verdict}>"

    @classmethod
    def of(
        cls,
        case: Case,
        channels: dict[str, ChannelResult],
        seconds: Mapping[str, float],
        names: tuple[str, str] = ("", ""),
    ) -> "CaseResult":
        """Returns the result of a case; ``names`` are those of the builds."""
        return cls(
            id=case.id,
            reference=names[0],
            candidate=names[1],
            program=case.program,
            mesh=str(case.mesh),
            candidate_mesh=str(case.candidate_mesh or ""),
            asked=case.placement.requested_mesh,
            options=case.placement.options,
            backend=case.placement.backend,
            seconds={phase: round(spent, 4) for phase, spent in seconds.items()},
            **_judged(channels),
        )

    def with_channels(self, channels: dict[str, ChannelResult]) -> "CaseResult":
        """Returns the result with other channels, and the verdict that they give."""
        return dataclasses.replace(self, **_judged(channels))

    @property
    def blocking(self) -> list[ChannelResult]:
        """The channels that keep the case from passing, worst first."""
        return blocking(self.channels.values())

    @property
    def explanation(self) -> Explanation | None:
        """The cause of the failure, and the findings behind it; None if nothing blocks the case."""
        return explain(self.id, self.channels, options=self.options)

    @property
    def first_difference(self) -> Finding | None:
        """The first difference of programs in a case that passes without a proof; None if there is none."""
        program = self.channels.get("program")
        rests = program and program.verdict in (Verdict.UNPROVED, Verdict.REORDERED) and not self.blocking
        return next(iter(program.findings), None) if program and rests else None

    @property
    def assumption(self) -> str:
        """The guesses of the weight map on which a pass rests, as text; empty if rules and names decide it."""
        count = self.channels["tree"].measures.get(UNNAMED) if "tree" in self.channels else None
        if self.verdict != PASSED or not count:
            return ""
        pair = self.id.partition("/")[0]
        words = "equal only if checkpoints are loaded in this way"
        return f"{pair}: {count} leaves paired by guess: {words}; `parity map` prints rules that state it"

    def rows(self, channel: str, table: str) -> Sequence[Row]:
        """Returns the rows of a channel's table; empty if it has none."""
        return self.channels[channel].tables.get(table, ()) if channel in self.channels else ()

    def sentence(self) -> str:
        """Returns a sentence on the worst problem and its place; empty if there is none."""
        if not self.blocking:
            return ""
        first = self.blocking[0]
        what = first.findings[0].sentence() if first.findings else first.detail
        return f"{self.id}: {first.name} {first.verdict}: {what}"


def _judged(channels: dict[str, ChannelResult]) -> dict[str, Any]:
    """Returns the fields of a result that depend on its channels.

    The verdict is the worst blocking one; else skipped, passed or unproved.
    """
    found = {result.verdict for result in channels.values()}
    values = {channels[name].verdict for name in of_aspect(Aspect.VALUES) if name in channels}
    program = channels["program"].verdict if "program" in channels else Verdict.PROVED
    covered = program in PROOFS or values - {Verdict.SKIPPED}
    rest = Verdict.SKIPPED if found <= {Verdict.SKIPPED} else PASSED if covered else Verdict.UNPROVED
    verdict = str(next((worst for worst in SEVERITY if worst in found), rest))
    # Waived numbers do not count as equal, and one compiled program is more than numbers.
    more = Verdict.WAIVED in values or any(ONE_PROGRAM in one.measures for one in channels.values())
    few = verdict == PASSED and program is Verdict.UNPROVED and not more
    return {"channels": channels, "verdict": verdict, "numbers_only": few}


def distinct(waivers: Iterable[Waiver]) -> tuple[Waiver, ...]:
    """Returns waivers, each once and sorted."""
    return tuple(sorted(set(waivers), key=lambda one: sorted(plain(one).items())))


def assumptions(results: Iterable[CaseResult]) -> list[str]:
    """Returns a sentence for each pair whose cases pass under a guessed weight map."""
    return list(dict.fromkeys(filter(None, (result.assumption for result in results))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """A requirement of a flip; the verdict is that of the decisive case, and a ready cell has no reason."""

    feature: str
    mesh: str
    channel: str
    state: str
    verdict: str = ""
    why: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Readiness:
    """The readiness of a flip.

    Args:
        verdict: ``blocked``, else ``open`` if cells are not in the record, else ``ready``: the flip may be made.
        waived, absent: number of cells that are waived, and not in the record.
        blocks: a sentence for each reason that blocks it.
    """

    name: str
    about: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    verdict: str
    cases: int
    waived: int
    absent: int = 0
    cells: tuple[Cell, ...]
    blocks: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement:
    """The readiness of flips, the settings that were relaxed without an entry, and remarks, as sentences."""

    flips: tuple[Readiness, ...] = ()
    relaxed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def blocks(self) -> list[str]:
        """A sentence for every block of a flip or of a setting."""
        return [f"{flip.name}: {block}" for flip in self.flips for block in flip.blocks] + [*self.relaxed]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partial:
    """The numbers of planned and finished cases of a run that ended early, and why; empty if it was interrupted."""

    planned: int
    finished: int
    why: str = dataclasses.field(default="", metadata=OPTIONAL)

    def sentence(self) -> str:
        """Returns the number of finished cases, and the reason."""
        why = self.why or "the run was interrupted"
        return f"{self.finished} of {self.planned} cases finished before {why}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The record of a run, in the form of docs/record.md.

    Args:
        numbers_only: the number of cases that passed by their numbers only.
        seconds: wall time.
        partial: numbers of cases, if not all of them ran.
        unvaried: ``{variants: {option: its only value}}`` of the options that none of their cases varies.
        shard: the part of the cases that the run took.
    """

    schema: int = SCHEMA
    environment: Mapping[str, Any]
    cases: tuple[CaseResult, ...]
    summary: Mapping[str, int] = dataclasses.field(init=False)
    numbers_only: int = dataclasses.field(init=False, default=0)
    seconds: float
    partial: Partial | None = dataclasses.field(default=None, metadata=OPTIONAL)
    waivers: tuple[Waiver, ...] = dataclasses.field(default=(), metadata=OPTIONAL)
    unvaried: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict, metadata=OPTIONAL)
    shard: Shard | None = dataclasses.field(default=None, metadata=OPTIONAL)
    gate: Judgement | None = dataclasses.field(default=None, metadata=OPTIONAL)

    def __post_init__(self):
        verdicts = [case.verdict for case in self.cases]
        object.__setattr__(self, "summary", {verdict: verdicts.count(verdict) for verdict in VERDICTS})
        object.__setattr__(self, "numbers_only", sum(case.numbers_only for case in self.cases))

    @classmethod
    def of(cls, cases: Sequence[CaseResult], planned: int, why: str = "", **fields: Any) -> "Report":
        """Returns the report of some of the planned cases; ``why`` the others did not run."""
        partial = Partial(planned=planned, finished=len(cases), why=why) if len(cases) < planned else None
        return cls(cases=tuple(cases), partial=partial, **fields)

    @property
    def planned(self) -> int:
        """The number of planned cases."""
        return self.partial.planned if self.partial else len(self.cases)

    @property
    def interrupted(self) -> bool:
        """True if the run ended early, and not by its own options."""
        return self.partial is not None and not self.partial.why

    @property
    def blocks(self) -> list[str]:
        """A sentence for every block of the gate; empty if none judged the report."""
        return self.gate.blocks if self.gate else []

    @property
    def assumptions(self) -> list[str]:
        """A sentence for each pair whose cases pass under a guessed weight map."""
        return assumptions(self.cases)

    @property
    def passes(self) -> bool:
        """True if the report is complete, and nothing blocks a case or a flip."""
        return not (self.partial or self.blocks or any(case.blocking for case in self.cases))

    def counts(self) -> str:
        """Returns text such as ``5 passed, 1 failed``."""
        return ", ".join(f"{n} {verdict}" for verdict, n in self.summary.items() if n) or "nothing ran"

    def headline(self) -> str:
        """Returns the counts; for a partial report also the number of finished cases."""
        partial = self.partial
        more = f"; partial: {partial.finished} of {partial.planned} cases finished" if partial else ""
        return self.counts() + more

    def phases(self) -> dict[str, float]:
        """Returns the seconds of all cases by phase."""
        names = dict.fromkeys(name for case in self.cases for name in case.seconds)
        return {name: sum(case.seconds.get(name, 0.0) for case in self.cases) for name in names}
