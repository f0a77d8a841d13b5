"""``parity gate``: decides whether defaults may change."""

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parity.cli.ending import annotate, say_reports
from parity.cli.options import (
    DIFFERENCE,
    HARNESS,
    INTERRUPTED,
    PARITY,
    Annotations,
    Html,
    Json,
    Junit,
    Markdown,
    Since,
    Workers,
    asked_forms,
    console,
    limits,
    make_request,
)

if TYPE_CHECKING:
    from parity.gate import Flip, Rules

__all__ = ["gate"]


def gate(
    flips: Annotated[list[str] | None, typer.Argument(help="Names of flips; all without.")] = None,
    earlier: Annotated[
        Path | None,
        typer.Option("--from", help="Run nothing: judge this report, such as parity report writes."),
    ] = None,
    part: Annotated[
        bool,
        typer.Option(
            "--part", help="With --from: the report holds a part of the cases; judge these, name the rest."
        ),
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Keep the verdicts of what passes as the new baselines.")
    ] = False,
    since: Since = None,
    base: Annotated[
        str,
        typer.Option(
            help="Branch or commit whose settings may not be stricter; over [tool.parity.gate] base."
        ),
    ] = "",
    json: Json = None,
    html: Html = None,
    junit: Junit = None,
    markdown: Markdown = None,
    annotations: Annotations = None,
    workers: Workers = None,
    cached: Annotated[
        bool,
        typer.Option("--cached", help="Reuse the verdicts of passed cases, as long as nothing has changed."),
    ] = False,
) -> None:
    """Judge flips: run what they touch, print what is ready and what holds them back."""
    from parity.gate import accept as accept_baselines
    from parity.gate import find_rules, print_gate
    from parity.report.changes import changes
    from parity.report.reading import read_report
    from parity.report.writing import check_forms, write_forms

    forms = asked_forms(json=json, html=html, junit=junit, markdown=markdown, annotations=annotations)
    check_forms(forms)
    rules = find_rules(Path.cwd())
    if accept and rules.baselines is None:
        raise ValueError(
            '--accept: got no folder, expected [tool.parity.gate] baselines = "parity-baselines"'
        )
    if part and earlier is None:
        raise ValueError("--part: got no --from, expected the report of a part; without it all cases run")
    chosen = _chosen(rules, flips or [])
    before = [read_report(path) for path in since or ()]
    report = _earlier(earlier) if earlier else _run(chosen, workers, cached)
    if accept and rules.baselines:
        taken = accept_baselines(rules.baselines, report)
        console().print(f"baselines: {len(taken)} cases accepted in {rules.baselines}", soft_wrap=True)
    report["gate"] = _judged(chosen, report, rules, base, part)
    if part and all(flip["absent"] == len(flip["cells"]) for flip in report["gate"]["flips"]):
        raise ValueError(f"--part: {earlier} has no case of these flips, expected one; judge another part")
    unwritten = write_forms(report, forms, before)
    print_gate(console(), report["gate"], flips or [])
    for change in changes(before[-1], report) if before else ():
        style = "bold red" if change.worse else ""
        console().print(change.sentence(), style=style, soft_wrap=True, markup=False, highlight=False)
    say_reports(forms, unwritten)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        annotate(report)
    if unwritten:
        raise typer.Exit(HARNESS)
    if "partial" in report:
        raise typer.Exit(INTERRUPTED)
    held = report["gate"]["relaxed"] or any(flip["blocks"] for flip in report["gate"]["flips"])
    raise typer.Exit(DIFFERENCE if held else PARITY)


def _chosen(rules: "Rules", names: list[str]) -> list["Flip"]:
    for name in names:
        if name not in rules.flips:
            near = difflib.get_close_matches(name, rules.flips, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"flip {name!r}: expected one of {', '.join(rules.flips)}{hint}")
    return [rules.flips[name] for name in dict.fromkeys(names or rules.flips)]


def _earlier(path: Path) -> dict[str, Any]:
    """Returns the report of a file with the current waivers, if it fits the cases of this checkout.

    Raises:
        ValueError: it is of another commit, or of cases with other settings.
    """
    from parity.cases.settings import collect
    from parity.compare.backends.environment import git_commit
    from parity.gate import with_current_waivers
    from parity.report.reading import read_report

    report = dict(read_report(path))
    environment = report["environment"]
    if settings := environment.get("settings"):
        words = " ".join(f"--set {name}={value}" for name, value in settings.items())
        raise ValueError(
            f"--from {path}: got cases with {words}, expected them as they are; run again without"
        )
    of, here = environment.get("commit"), git_commit()
    if of and here and of.rstrip("+") != here.rstrip("+"):
        raise ValueError(f"--from {path}: got a report of commit {of}, expected {here}; run the cases again")
    return with_current_waivers(report, {case.id: case.accept.waivers for case in collect()[1]})


def _run(flips: list["Flip"], workers: int | None, cached: bool) -> dict[str, Any]:
    """Runs the cases that the flips affect, each once, and returns the report."""
    from parity.cases.case import matches
    from parity.cases.settings import collect
    from parity.cli.terminal import Terminal
    from parity.report import as_json, print_table
    from parity.run.request import CacheMode
    from parity.run.schedule import execute

    asked = [selector for flip in flips for selector in flip.cases]
    every = collect()[1]
    known = [one for one in dict.fromkeys(asked) if any(matches(case, one) for case in every)]
    if not known:
        return {**as_json(_nothing()), "seconds": 0.0}
    request = make_request(
        known, given=limits(workers=workers), cache=CacheMode.REUSE if cached else CacheMode.IGNORE
    )
    record = execute(request, Terminal(console()))
    print_table(console(), record)
    return as_json(record)


def _nothing() -> Any:
    from parity.compare.backends.environment import describe_environment
    from parity.run.record import Run

    return Run(environment=describe_environment(), planned=0)


def _judged(
    flips: list["Flip"], report: dict[str, Any], rules: "Rules", base: str, part: bool
) -> dict[str, Any]:
    from parity.cases.settings import collect
    from parity.gate import fallen, gate_record, judge, relaxed

    planned = [case.id for case in collect()[1]]
    lower = fallen(rules.baselines, report["cases"]) if rules.baselines else {}
    readiness = [judge(flip, report, rules, planned, lower, part) for flip in flips]
    looser = relaxed(rules, base)
    return gate_record(readiness, looser.blocks, looser.notes)
