"""The kill matrix: table, Markdown, JSON; survivors first."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from parity.channels import ALL
from parity.mutants.mutant import Mutant
from parity.mutants.trial import Outcome, Status
from parity.report.table import make_table

SCHEMA = 1
WORST_FIRST = tuple(Status)
COLUMNS = (*ALL, "oracle")


def succeeded(outcomes: Sequence[Outcome]) -> bool:
    """True if all bugs were killed as expected, and all benign edits passed."""
    return all(outcome.as_expected for outcome in outcomes)


def _sorted(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return sorted(outcomes, key=lambda one: (WORST_FIRST.index(one.status), one.as_expected, one.id))


def score(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Returns the counts by status, the share of bugs killed, and the share of those with all words named."""
    count = collections.Counter(str(outcome.status) for outcome in outcomes)
    killed = [outcome for outcome in outcomes if outcome.status is Status.KILLED]
    tried = len(killed) + count[Status.SURVIVED]
    return {
        **{str(status): count[status] for status in Status},
        "score": len(killed) / tried if tried else None,
        "named": sum(not one.unnamed for one in killed) / len(killed) if killed else None,
    }


def catches(outcomes: Sequence[Outcome]) -> dict[str, tuple[int, int]]:
    """Returns for each channel the number of bugs that it catches, and that it alone catches, ignoring ``program``."""
    killed = [set(outcome.by) for outcome in outcomes if outcome.status is Status.KILLED]
    others = [by - {"program"} or by for by in killed]
    return {name: (sum(name in by for by in killed), sum(by == {name} for by in others)) for name in COLUMNS}


def as_json(outcomes: Sequence[Outcome], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the record: environment, score, catches by channel, and every outcome."""
    return {
        "schema": SCHEMA,
        "environment": dict(environment),
        "score": score(outcomes),
        "channels": {name: {"catches": n, "alone": alone} for name, (n, alone) in catches(outcomes).items()},
        "mutants": [dataclasses.asdict(outcome) for outcome in _sorted(outcomes)],
    }


def print_matrix(screen: Console, outcomes: Sequence[Outcome]) -> None:
    """Prints unexpected outcomes one by one, then catches by channel, and the score."""
    for outcome in _sorted(outcomes):
        if not outcome.as_expected:
            screen.print(Text(f"{outcome.status}  ", "bold red").append(outcome.id, "bold"), soft_wrap=True)
            missed = f"expected of {', '.join(outcome.missed)}" if outcome.missed else ""
            unnamed = f"not named: {', '.join(map(repr, outcome.unnamed))}" if outcome.unnamed else ""
            why = "; ".join(filter(None, [outcome.why, missed, unnamed]))
            screen.print(f"  {why}", soft_wrap=True, markup=False, highlight=False, emoji=False)
    table = make_table(("channel",), ("catches", "alone"))
    for name, (n, alone) in catches(outcomes).items():
        table.add_row(name, str(n), str(alone))
    screen.print(table)
    screen.print(_summary(outcomes), soft_wrap=True, highlight=False)


def _summary(outcomes: Sequence[Outcome]) -> str:
    got = score(outcomes)
    share = f" ({got['score']:.1%})" if got["score"] is not None else ""
    named = f", {got['named']:.1%} of them named" if got["named"] is not None else ""
    benign = got["passed"] + got["alarm"]
    return (
        f"{got['killed']} of {got['killed'] + got['survived']} bugs killed{share}{named}; "
        f"{got['alarm']} of {benign} benign edits raise an alarm; {got['broken']} could not be tried"
    )


def as_markdown(outcomes: Sequence[Outcome], mutants: Sequence[Mutant]) -> str:
    """Returns the matrix as a page: the score, catches by channel, and a row for each mutant, survivors first."""
    of = {mutant.id: mutant for mutant in mutants}
    lines = [
        "# The kill matrix",
        "",
        _summary(outcomes) + ".",
        "",
        "| channel | catches | alone |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | {n} | {alone} |" for name, (n, alone) in catches(outcomes).items()]
    lines += ["", "| mutant | origin | in | armed by | status | caught by |", "|---|---|---|---|---|---|"]
    for outcome in _sorted(outcomes):
        mutant = of[outcome.id]
        files = ", ".join(dict.fromkeys(f"`{edit.file}`" for edit in mutant.edits))
        armed = mutant.case or Path(mutant.oracle.split("::")[0]).name
        what = [outcome.id, mutant.origin, files, f"`{armed}`", str(outcome.status), ", ".join(outcome.by)]
        lines.append(f"| {' | '.join(what)} |")
    return "\n".join(lines) + "\n"
