"""``parity bisect``: finds the cause of a failing case."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parity.cli.options import DIFFERENCE, PARITY, Html, Json, Pairs, Settings, console

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parity.bisect.report import Report
    from parity.cases.case import Case
    from parity.run.request import Request
    from parity.run.run import CaseResult

__all__ = ["bisect", "bisect_failures", "one_case", "show"]

QUICK = ("op", "module")
"""The axes that cost one evaluation of each side, for any case."""


def bisect(
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
    json: Json = None,
    html: Html = None,
    pair: Pairs = None,
    setting: Settings = None,
    repro: Annotated[
        Path | None, typer.Option("--repro", help="Write a folder that shows the failure elsewhere.")
    ] = None,
) -> None:
    """Follow one failure to the operation, module, weight, settings, size, commit or version behind it."""
    from parity.bisect.report import AXES, bisect_case
    from parity.bisect.repro import ReproSpec, check_free, write_repro
    from parity.cases.settings import parse_settings
    from parity.cli.history import SEARCHES
    from parity.report.formats import FORMS
    from parity.report.records import write_json, write_text
    from parity.report.writing import check_forms

    check_forms({name: file for name, file in (("json", json), ("html", html)) if file})
    if repro:
        check_free(repro)
    values_given = {"commit": (good, bad) if good else None, "version": requirement}
    alone = _alone(search or [], values_given, bool(repro or html))
    if alone:
        raise typer.Exit(SEARCHES[alone](case, values_given[alone], pair, setting, json))
    given = parse_settings(setting)
    found = one_case(case, pair, given)

    def remade(settings: "Mapping[str, str]") -> "Case":
        return one_case(found.id, pair, settings)

    screen = console()
    with screen.status("", spinner="dots") as status:
        report = bisect_case(
            found,
            _searches(search, AXES),
            notify=lambda words: status.update(words),
            given=given,
            remade=remade,
        )
    show(report)
    if json:
        write_json(report.record(), json)
        screen.print(f"report: {json}", soft_wrap=True)
    if html:
        write_text(FORMS["html"].render(_whole(report), ()), html)
        screen.print(f"html: {html}", soft_wrap=True)
    if repro and report.signature:
        write_repro(
            repro, ReproSpec(case=found, signature=report.signature, pairs=tuple(pair or ()), settings=given)
        )
        screen.print(f"repro: {repro}; python {repro / 'repro.py'} shows it again", soft_wrap=True)
    raise typer.Exit(PARITY if report.signature is None else DIFFERENCE)


def _searches(named: list[str] | None, known: "Mapping[str, object]") -> tuple[str, ...]:
    if named and "none" in named:
        if named != ["none"]:
            raise ValueError("--search none: got another search too, expected one of them")
        return ()
    return tuple(dict.fromkeys(named or known))


def _alone(axes: list[str], values_given: "Mapping[str, object]", repro: bool) -> str:
    """Returns the axis that must be the only one, because it runs the command again; empty for the others."""
    alone = next((name for name in values_given if name in axes), "")
    if alone and (axes != [alone] or repro):
        raise ValueError(f"--search {alone}: expected no other search, no --repro and no --html beside it")
    for name, what in values_given.items():
        if what and name != alone:
            given = {"commit": "--good", "version": repr(what)}[name]
            raise ValueError(f"{given}: got no --search {name}, expected it; it is for that search alone")
    return alone


def _whole(report: "Report") -> dict[str, Any]:
    """Returns the report of a run of the one case, with the result of the bisect."""
    from parity.compare.backends.environment import describe_environment
    from parity.report import as_json
    from parity.run.record import Run

    return as_json(
        Run(
            environment=describe_environment(),
            planned=1,
            results=[report.result],
            seconds=sum(report.result.seconds.values()),
            followed={report.case: report.record()} if report.signature else {},
        )
    )


def one_case(selector: str, pairs: list[str] | None, settings: "Mapping[str, str]") -> "Case":
    """Returns the one case that a selector selects.

    Args:
        selector: see `parity.cases.case.select`; an id selects only the case with exactly this id.
        pairs: further pairs.
        settings: config fields to set.

    Raises:
        ValueError: it selects none, or several.
    """
    from parity.cases.case import select
    from parity.cases.settings import collect

    cases = collect(pairs or (), settings, select=(selector,))[1]
    chosen = select(cases, (selector,))
    chosen = [each for each in chosen if each.id == selector] or chosen
    if len(chosen) != 1:
        some = ", ".join(each.id for each in chosen[:3])
        raise ValueError(
            f"case {selector!r}: matches {len(chosen)} cases ({some}, ...), expected one; give a whole id"
        )
    return chosen[0]


def bisect_failures(results: "Sequence[CaseResult]", request: "Request") -> "dict[str, Mapping[str, Any]]":
    """Bisects every failure of a run along the quick axes, and prints the results.

    Args:
        results: results of the run.
        request: request of the run; the searches require the same rungs.

    Returns:
        The records of the bisects, by id of the case.
    """
    from parity.bisect.report import bisect_case
    from parity.compare.session import Session

    followed = {}
    for result in results:
        if result.blocking and not result.case.placement.skip_reason:
            report = bisect_case(
                result.case,
                QUICK,
                result=result,
                bench=Session(paranoid=request.paranoid, required=request.required),
            )
            show(report)
            followed[result.case.id] = report.record()
    return followed


def show(report: "Report") -> None:
    """Prints the sentence of a report, then the other sentences and the tables."""
    from rich.table import Table

    screen, first = console(), report.sentence()
    screen.print(first, soft_wrap=True, markup=False, highlight=False)
    for finding in report.findings:
        words = finding.sentence if not first.endswith(finding.sentence) else ""
        if words or finding.rows:
            screen.print(
                f"\n{finding.axis}: {words}".rstrip(" "), soft_wrap=True, markup=False, highlight=False
            )
        if finding.rows:
            table = Table(*finding.head, box=None, header_style="bold", padding=(0, 2, 0, 0))
            for row in finding.rows:
                table.add_row(*row)
            screen.print(table, markup=False, highlight=False)
