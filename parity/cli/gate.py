"""``parity gate``: decides whether defaults may change."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parity.cli import options
from parity.cli.options import DIFFERENCE, INTERRUPTED, PARITY, checked_files, console, echo, make_request

if TYPE_CHECKING:
    from parity.gate.flips import Rules
    from parity.run.record import Report


def command(
    flips: Annotated[list[str] | None, typer.Argument(help="Names of flips. Default: all flips.")] = None,
    earlier: Annotated[
        Path | None,
        typer.Option("--from", help="Judge this report of `parity run` or `parity report`; run nothing."),
    ] = None,
    part: Annotated[
        bool,
        typer.Option(
            "--part",
            help="With --from: the report has only a part of the cases; judge these, list the others.",
        ),
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Store the verdicts of passed cases as the new baselines.")
    ] = False,
    since: options.Since = None,
    base: Annotated[
        str,
        typer.Option(
            help="Branch or commit to compare requirements with; overrides base in [tool.parity.gate]."
        ),
    ] = "",
    json: options.Json = None,
    html: options.Html = None,
    junit: options.Junit = None,
    markdown: options.Markdown = None,
    annotations: options.Annotations = None,
    workers: options.Workers = None,
    cached: options.Cached = False,
) -> None:
    """Judge whether flips are ready. Run the cases that they affect, and print what blocks a flip."""
    from parity.cases.settings import collect
    from parity.cases.tables import unknown
    from parity.cli.terminal import end_reports, read_earlier, say_changes
    from parity.gate.baselines import accept as accept_baselines
    from parity.gate.baselines import fallen
    from parity.gate.flips import find_rules
    from parity.gate.judge import judge
    from parity.gate.relaxation import relaxed
    from parity.gate.table import print_gate
    from parity.report.formats import write_forms

    forms = checked_files(json=json, html=html, junit=junit, markdown=markdown, annotations=annotations)
    rules = find_rules(Path.cwd())
    if accept and rules.baselines is None:
        raise ValueError(
            '--accept: no folder for baselines; set [tool.parity.gate] baselines = "parity-baselines"'
        )
    if part and earlier is None:
        raise ValueError("--part: only with --from, which names the report of a part; add it")
    for name in flips or []:
        if name not in rules.flips:
            raise ValueError(f"flip: {unknown(name, rules.flips)}")
    chosen = list(dict.fromkeys(flips or rules.flips))
    before = read_earlier(since)
    report = _earlier(earlier) if earlier else _run(rules, chosen, workers, cached)
    if accept and rules.baselines:
        taken = accept_baselines(rules.baselines, report)
        echo(f"baselines: {len(taken)} cases accepted in {rules.baselines}")
    planned = [case.id for case in collect()[1]]
    lower = fallen(rules.baselines, report.cases) if rules.baselines else {}
    readiness = tuple(judge(flip, report, rules, planned, lower, part) for flip in chosen)
    judged = dataclasses.replace(relaxed(rules, base), flips=readiness)
    report = dataclasses.replace(report, gate=judged)
    if part and all(flip.absent == len(flip.cells) for flip in readiness):
        echo(f"--part: {earlier} has no case of these flips, so nothing is judged")
    unwritten = write_forms(report, forms, before)
    print_gate(console(), judged, flips or [])
    say_changes(before, report)
    end_reports(forms, unwritten, report)
    if report.partial:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(DIFFERENCE if judged.blocks else PARITY)


def _earlier(path: Path) -> "Report":
    """Returns the report of a file, if it is of this commit, of these waivers and of cases without --set."""
    from parity.cases.settings import collect
    from parity.compare.backends.environment import git_commit
    from parity.report.reading import read_report
    from parity.run.record import distinct

    report = read_report(path)
    environment = report.environment
    if settings := environment.get("settings"):
        words = " ".join(f"--set {name}={value}" for name, value in settings.items())
        raise ValueError(f"--from {path}: this report was made with {words}; run the cases without --set")
    of, here = environment.get("commit"), git_commit()
    if of and here and of.rstrip("+") != here.rstrip("+"):
        raise ValueError(f"--from {path}: a report of commit {of}, but this is {here}; run the cases again")
    waivers = {case.id: case.accept.waivers for case in collect()[1]}
    if distinct(one for case in report.cases for one in waivers.get(case.id, ())) != report.waivers:
        raise ValueError(
            f"--from {path}: a report with other waivers than those of today; run the cases again"
        )
    return report


def _run(rules: "Rules", flips: list[str], workers: int | None, cached: bool) -> "Report":
    from parity.cases.case import matches
    from parity.cases.settings import collect
    from parity.cli.terminal import Terminal
    from parity.compare.backends.environment import describe_environment
    from parity.report.table import print_table
    from parity.run.record import Report
    from parity.run.request import CacheMode
    from parity.run.schedule import execute

    selectors = dict.fromkeys(selector for flip in flips for selector in rules.flips[flip].cases)
    every = collect()[1]
    known = [one for one in selectors if any(matches(case, one) for case in every)]
    if not known:
        return Report(environment=describe_environment(), cases=(), seconds=0.0)
    cache = CacheMode.REUSE if cached else CacheMode.IGNORE
    report = execute(make_request(known, workers=workers, cache=cache), Terminal())
    print_table(console(), report)
    return report
