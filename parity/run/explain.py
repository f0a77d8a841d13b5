"""Explains a difference in structure by ablation: the smallest change of settings that makes it vanish."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console

from parity.cases.case import Case
from parity.channels import Aspect, of_aspect
from parity.compare.comparison import Session
from parity.run.run import CaseResult, run_case
from parity.verdicts import BLOCKING, Verdict

__all__ = ["Explanation", "explain", "print_explanations", "smallest"]

Settings = Mapping[str, str]
MOST_AT_ONCE = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """What ablation showed of one channel of one case.

    Args:
        case: its id.
        channel: where both sides differ.
        settings: the smallest change that makes the difference vanish; None when none that was tried does.
        tried: how many changes were tried.
    """

    case: str
    channel: str
    settings: Settings | None
    tried: int

    def sentence(self) -> str:
        """Returns it in one sentence."""
        start = f"{self.case}: the difference in {self.channel}"
        if self.settings is None:
            return f"{start} stays under each of {self.tried} changes of settings, one or two at a time"
        words = " and ".join(f"{name}={text}" for name, text in self.settings.items())
        return f"{start} vanishes with {words} on both sides; look at what acts on that setting ({self.tried} tried)"


def smallest(
    changes: Sequence[Settings], vanishes: Callable[[Settings], bool]
) -> tuple[Settings | None, int]:
    """Returns the first change that suffices, single ones before pairs, and how many were tried.

    Args:
        changes: what may be changed, likely causes first.
        vanishes: whether the difference is gone under a change.
    """
    tried = 0
    for change in _combined(changes):
        tried += 1
        if vanishes(change):
            return change, tried
    return None, tried


def _combined(changes: Sequence[Settings]) -> Iterator[Settings]:
    for count in range(1, MOST_AT_ONCE + 1):
        for chosen in itertools.combinations(changes, count):
            names = [name for change in chosen for name in change]
            if len(names) == len(set(names)):
                yield {name: text for change in chosen for name, text in change.items()}


def explain(case: Case, channel: str, bench: Session) -> Explanation:
    """Changes settings on both sides until a channel of the case no longer fails.

    Args:
        case: one that says how it is varied and what may be changed.
        channel: one that fails.
        bench: where compiled sides are kept.

    Raises:
        ValueError: the case names no changes.
    """
    vary = case.vary
    if vary is None or not case.ablations:
        raise ValueError(
            f"{case.id}: got no settings to change, expected `vary` and `ablations` of the case; "
            "parity/matrix/cases.py shows how a pair gives them"
        )

    def vanishes(settings: Settings) -> bool:
        varied = dataclasses.replace(vary(settings), mesh=case.mesh, backend=case.backend)
        result = run_case(varied, bench, (channel,)).channels[channel]
        return result.verdict not in BLOCKING

    settings, tried = smallest(case.ablations, vanishes)
    return Explanation(case=case.id, channel=channel, settings=settings, tried=tried)


def print_explanations(console: Console, results: Sequence[CaseResult]) -> None:
    """Prints an explanation of every failed channel of structure of the cases that can be varied."""
    bench = Session()
    for result in results:
        if result.case.vary is None or not result.case.ablations:
            continue
        for name in of_aspect(Aspect.STRUCTURE):
            channel = result.channels.get(name)
            if channel is not None and channel.verdict is Verdict.FAILED:
                console.print(explain(result.case, name, bench).sentence(), soft_wrap=True, markup=False)
