"""``parity bisect``: finds the cause of a failing case."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parity.cli import options
from parity.cli.options import DIFFERENCE, PARITY, USAGE, checked_files, console, echo, progress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parity.cases.case import Case
    from parity.run.record import Bisect, CaseResult, Report
    from parity.run.request import Request

QUICK = ("op", "module")
"""The searches that cost one evaluation of each side, for any case."""
HISTORY = {"commit": "--good", "version": "a range"}
"""Searches that run the command again at every place, each with the argument that it needs."""
WHOLE = 10_000
"""Width outside a terminal, so that no cell is cut."""


def command(
    case: Annotated[str, typer.Argument(help="The id of a case that fails, or what selects it alone.")],
    requirement: Annotated[
        str | None, typer.Argument(help="With --search version: package and range, such as jax>=0.10,<0.13.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            "--search",
            help="op, module, weight, config, size, commit, version or none; may be repeated. Default: the first five.",
        ),
    ] = None,
    good: Annotated[str | None, typer.Option(help="With --search commit: a commit that passes.")] = None,
    bad: Annotated[str, typer.Option(help="With --search commit: a commit that fails.")] = "HEAD",
    json: options.Json = None,
    html: options.Html = None,
    pair: options.Pairs = None,
    setting: options.Settings = None,
    repro: Annotated[
        Path | None, typer.Option("--repro", help="Write a folder that shows the failure elsewhere.")
    ] = None,
) -> None:
    """Find the cause of one failure. It is an operation, module, weight, setting, size, commit or version."""
    from parity.bisect.report import AXES, bisect_case
    from parity.bisect.repro import check_free, write_repro
    from parity.cases.settings import parse_settings
    from parity.compare.session import Session
    from parity.report.formats import FORMS
    from parity.report.records import write_text
    from parity.run.run import run_case

    checked_files(json=json, html=html)
    if repro:
        check_free(repro)
    kind = _history(search or [], {"commit": good, "version": requirement}, bool(repro or html))
    if kind:
        ends = (good or "", bad) if kind == "commit" else (requirement or "",)
        history = _search_history(ends, case, pair, setting)
        _show(history, json)
        raise typer.Exit(USAGE if history.ambiguous else DIFFERENCE)
    given = parse_settings(setting)
    chosen = _one_case(case, pair, given)

    def remade(settings: "Mapping[str, str]") -> "Case":
        return _one_case(chosen.id, pair, settings)

    searches, bench = _searches(search, AXES), Session()
    progress("the case itself")
    result = run_case(chosen, bench)
    found = bisect_case(
        chosen, searches, result=result, bench=bench, notify=progress, given=given, remade=remade
    )
    _show(found, json)
    if html:
        write_text(FORMS["html"](_whole(result, found), ()), html)
        echo(f"html: {html}")
    if repro and found.signature:
        write_repro(repro, chosen, found.signature, pair or (), given)
        echo(f"repro: {repro}; python {repro / 'repro.py'} shows it again")
    raise typer.Exit(PARITY if found.signature is None else DIFFERENCE)


def _searches(named: list[str] | None, known: "Mapping[str, object]") -> tuple[str, ...]:
    if named and "none" in named:
        if named != ["none"]:
            raise ValueError("--search none: another search is named too; leave one of them out")
        return ()
    for name in named or ():
        if name not in known:
            raise ValueError(f"--search {name!r}: expected one of {', '.join((*known, *HISTORY, 'none'))}")
    return tuple(dict.fromkeys(named or known))


def _history(searches: list[str], given: "Mapping[str, str | None]", more: bool) -> str:
    """Returns the search over commits or versions, after checking its arguments; empty if another is requested."""
    kind = next((name for name in HISTORY if name in searches), "")
    if kind and (searches != [kind] or more):
        raise ValueError(f"--search {kind}: leave out other searches, --repro and --html")
    if kind and not given[kind]:
        example = {"commit": "--good v1.2", "version": '"jax>=0.10,<0.13"'}[kind]
        raise ValueError(f"--search {kind}: {HISTORY[kind]} is missing; add it, such as {example}")
    for name, value in given.items():
        if value and name != kind:
            option = "--good" if name == "commit" else repr(value)
            raise ValueError(f"{option}: only for --search {name}; add that option, or leave this one out")
    return kind


def _search_history(
    ends: tuple[str, ...], case: str, pairs: list[str] | None, settings: list[str] | None
) -> "Bisect":
    """Searches commits between two ends, or versions in one range; each check runs the command again."""
    from parity.bisect.commit import search_commits
    from parity.bisect.history import REPORT, Check
    from parity.bisect.version import search_versions

    more = [word for text in pairs or () for word in ("--pair", text)]
    more += [word for text in settings or () for word in ("--set", text)]
    words = (sys.executable, "-m", "parity", "run", case, "--json", REPORT, *more)
    search = search_commits if len(ends) == 2 else search_versions
    return search(Check(words=words, case=case), Path.cwd(), *ends, notify=progress)


def _whole(result: "CaseResult", found: "Bisect") -> "Report":
    """Returns the record of a run of the one case, with the results of the searches."""
    from parity.compare.backends.environment import describe_environment
    from parity.run.record import Report

    case = dataclasses.replace(result, bisect=found if found.signature else None)
    seconds = round(sum(case.seconds.values()), 3)
    return Report(cases=(case,), environment=describe_environment(), seconds=seconds)


def _one_case(selector: str, pairs: list[str] | None, settings: "Mapping[str, str]") -> "Case":
    """Returns the one case that a selector selects, else ValueError; a whole id selects only the case that has it."""
    from parity.cases.case import select
    from parity.cases.settings import collect

    cases = collect(pairs or (), settings, select=(selector,))[1]
    chosen = select(cases, (selector,))
    if len(chosen) != 1:
        some = ", ".join(each.id for each in chosen[:3])
        raise ValueError(
            f"case {selector!r}: matches {len(chosen)} cases ({some}, ...), expected one; give a whole id"
        )
    return chosen[0]


def bisect_failures(report: "Report", request: "Request") -> "Report":
    """Bisects every failure of a run along the quick axes, prints the findings, and adds them to the record."""
    from parity.bisect.report import bisect_case
    from parity.compare.session import Session

    cases, found = {case.id: case for case in request.select_cases(request.find_backend())}, []
    for result in report.cases:
        bisect = None
        if result.blocking:
            bench = Session(paranoid=request.paranoid, required=request.required)
            bisect = bisect_case(cases[result.id], QUICK, result=result, bench=bench)
            _show(bisect)
        found.append(dataclasses.replace(result, bisect=bisect))
    return dataclasses.replace(report, cases=tuple(found))


def _show(found: "Bisect", json: Path | None = None) -> None:
    from rich.table import Table

    from parity.report.records import write_json

    echo(found.sentence)
    for finding in found.axes:
        words = finding.sentence if not found.sentence.endswith(finding.sentence) else ""
        if words or finding.rows:
            echo(f"\n{finding.axis}: {words}".rstrip(" "))
        if finding.rows:
            table = Table(*finding.head, box=None, header_style="bold", padding=(0, 2, 0, 0))
            for row in finding.rows:
                table.add_row(*row)
            console(WHOLE).print(table, markup=False, highlight=False)
    if json:
        write_json(found, json)
        echo(f"report: {json}")
