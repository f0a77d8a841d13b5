"""Terminal output: a table that fits 80 columns, and findings as sentences."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.cases.coverage import unvaried_text
from parity.channels import CHANNELS
from parity.channels.channel import BY_RULES
from parity.run.explain import explain
from parity.run.record import PASSED, CaseResult, Report
from parity.run.waiving import PREFIX
from parity.verdicts import BLOCKING, ChannelResult, Verdict, shortened

MOST_FINDINGS = 8
MOST_UNVARIED = 4
CELL = 4
"""Minimum width of a column; most verdicts have at most this many letters."""

MARKS: Mapping[str, tuple[str, str]] = {
    Verdict.PROVED: ("qed", "bold green"),
    Verdict.REORDERED: ("reord", "green"),
    Verdict.BITWISE: ("bits", "green"),
    Verdict.EQUAL: ("same", "green"),
    Verdict.FLOOR: ("noise", "yellow"),
    Verdict.ARBITRATED: ("f64", "yellow"),
    Verdict.EXACT: ("exact", "green"),
    Verdict.TIE: ("tie", "yellow"),
    Verdict.WAIVED: ("waived", "yellow"),
    Verdict.FAILED: ("FAIL", "bold red"),
    Verdict.VACUOUS: ("VAC", "bold magenta"),
    Verdict.ERROR: ("ERR", "bold red"),
    Verdict.UNPROVED: ("diff", "yellow"),
    Verdict.OPEN: ("open", "bold yellow"),
    Verdict.SKIPPED: ("-", "dim"),
}
"""Verdict of a channel -> mark and style, in the order of the legend."""
RULES = "rule"
"""Mark of a proof by rules, which covers the values but does not show equal programs."""
COLUMNS: dict[str, tuple[str, ...]] = {
    channel.column: tuple(name for name, other in CHANNELS.items() if other.column == channel.column)
    for channel in CHANNELS.values()
}
"""Head -> channels: the first is shown unless another one blocks, has a tie or is waived. JSON has all."""

RESTS = frozenset({Verdict.UNPROVED, Verdict.REORDERED})
"""Verdicts on programs whose values are compared as numbers."""
LOUD = BLOCKING | {Verdict.TIE, Verdict.WAIVED}
Channels = Mapping[str, ChannelResult]


def shown(channels: Channels, names: Sequence[str]) -> ChannelResult | None:
    """Returns the channel that a column shows: the first loud one, else the first; None if there is none."""
    held = [channels[name] for name in names if name in channels]
    return next((one for one in held if one.verdict in LOUD), held[0] if held else None)


def _cell(channel: ChannelResult | None) -> Text:
    return Text(_mark(channel)[0], MARKS[channel.verdict][1]) if channel else Text("-", "dim")


def _mark(channel: ChannelResult) -> tuple[str, str]:
    verdict = channel.verdict
    if verdict == Verdict.PROVED and BY_RULES in channel.measures:
        return RULES, "proved by rules"
    return MARKS[verdict][0], verdict


def styled(verdict: str) -> Text:
    """Returns the verdict of a channel or of a case in its colour."""
    return Text(verdict, "green" if verdict == "passed" else MARKS[verdict][1])


def legend(marks: Iterable[tuple[str, str]]) -> Text:
    """Returns marks with their meanings in one line."""
    words = (mark if mark == meaning else f"{mark} {meaning}" for mark, meaning in marks)
    return Text(", ".join(words), "dim")


def make_table(words: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Returns a table without lines: columns of words, which wrap, then columns of numbers, which do not."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for head in words:
        table.add_column(head, overflow="fold")
    for head in numbers:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def print_table(console: Console, report: Report) -> None:
    """Prints one row per case and a closing line."""
    cases = report.cases
    names = [case.id.rpartition("@")[0] for case in cases]
    seconds = ["cached" if case.remembered else f"{sum(case.seconds.values()):.1f}" for case in cases]
    rows = [[_cell(shown(case.channels, names)) for names in COLUMNS.values()] for case in cases]
    widths = [max(CELL, len(head), *map(len, column)) for head, *column in zip(COLUMNS, *rows, strict=True)]
    last = 1 + max(map(len, ["s", *seconds]))
    space = min(console.width - sum(width + 1 for width in widths) - last, max(map(len, ["case", *names])))

    def line(name: Text, cells: Sequence[Text], spent: str) -> None:
        """Prints a row; a name that is too long is printed on a separate line."""
        if len(name) > space:
            console.print(name, soft_wrap=True)
            name = Text()
        row = Text.assemble(name, " " * (space - len(name)))
        for cell, width in zip(cells, widths, strict=True):
            row.append(" ").append(cell).append(" " * (width - len(cell)))
        console.print(row.append(f"{spent:>{last}}"), soft_wrap=True)

    if cases:
        line(Text("case", "bold"), [Text(head, "bold") for head in COLUMNS], "s")
    mesh = ""
    for case, name, cells, spent in zip(cases, names, rows, seconds, strict=True):
        if case.mesh != mesh:
            mesh = case.mesh
            console.print(Text(f"@{mesh}", "bold cyan"), soft_wrap=True)
        line(Text(name, "" if case.verdict == PASSED else MARKS[case.verdict][1]), cells, spent)
    _print_closing(console, report)


def _print_closing(console: Console, report: Report) -> None:
    """Prints the lines below the table: the legend, counts, times, and notes on all cases."""
    cases = report.cases
    marks = {_mark(channel) for case in cases for channel in case.channels.values()}
    order = [*(mark for mark, _ in MARKS.values()), RULES]
    if marks:
        console.print(legend(sorted(marks, key=lambda one: order.index(one[0]))), soft_wrap=True)
    fitted = (
        f"{case.asked} fitted to {case.backend} as {case.candidate_mesh or case.mesh}"
        for case in cases
        if case.asked
    )
    for words in dict.fromkeys(fitted):
        console.print(words, soft_wrap=True)
    reused = sum(case.remembered for case in cases)
    words = report.counts() + (f" ({reused} cached)" if reused else "")
    phases = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in report.phases().items())
    console.print(f"{words} in {report.seconds:.0f} s" + (f" ({phases})" if phases else ""), soft_wrap=True)
    _print_assumptions(console, report)
    if weaker := report.numbers_only:
        text = f"{weaker} cases equal in numbers only: a proof was tried, and their programs differ"
        console.print(Text(text, "yellow"), soft_wrap=True)
    if report.unvaried:
        console.print(Text(unvaried_text(report.unvaried, MOST_UNVARIED), "dim"), soft_wrap=True)
    if report.partial:
        console.print(Text(f"PARTIAL: {report.partial.sentence()}", "bold yellow"))


def _print_assumptions(console: Console, report: Report) -> None:
    for words in report.assumptions:
        console.print(Text(words, "yellow"), soft_wrap=True)


def print_details(console: Console, results: Sequence[CaseResult]) -> None:
    """Prints a line for each channel of each case: the verdict and its detail."""
    for result in results:
        for channel in result.channels.values():
            line = Text(f"{result.id}  {channel.name} ").append(str(channel.verdict), "bold")
            console.print(line.append(f": {channel.detail}"), soft_wrap=True)


def print_proofs(console: Console, report: Report) -> None:
    """Prints one row per case: the prover's verdict, the number of operations, and times."""
    table = make_table(("case", "program"), ("operations", "trace+lower s", "prove s"))
    for result in report.cases:
        program = result.channels.get("program")
        verdict = program.verdict if program else Verdict.ERROR
        seconds = result.seconds
        table.add_row(
            result.id,
            styled(verdict),
            f"{program.measures.get('operations', 0):,.0f}" if program else "-",
            f"{seconds['trace'] + seconds['lower']:.2f}",
            f"{seconds['prove']:.2f}",
        )
    console.print(table)
    proofs = [(case.id, case.channels["program"]) for case in report.cases if "program" in case.channels]
    proved = [program for _, program in proofs if program.verdict is Verdict.PROVED]
    operations = sum(program.measures.get("operations", 0) for _, program in proofs)
    seconds = sum(case.seconds["prove"] for case in report.cases)
    rate = f", {operations / seconds:,.0f} operations a second" if seconds else ""
    loose = sum(program.verdict is Verdict.REORDERED for _, program in proofs)
    ruled = sum(BY_RULES in program.measures for program in proved)
    also = (f" ({ruled} by rules)" if ruled else "") + (f", {loose} reordered" if loose else "")
    words = f"{len(proved)} of {report.planned} proved{also} in {report.seconds:.0f} s{rate}"
    console.print(words, soft_wrap=True)
    _print_assumptions(console, report)
    for id, program in proofs:
        if program.verdict in RESTS or BY_RULES in program.measures:
            console.print(f"{id}  {program.detail}", soft_wrap=True, markup=False)
            for finding in program.findings[1:MOST_FINDINGS]:
                console.print(f"  {finding.sentence()}", soft_wrap=True, markup=False, highlight=False)


def findings_text(result: CaseResult, *, runnable: bool = True) -> str:
    """Returns one line on the cause of a failure, and the findings behind it; empty if the case passes."""
    found = explain(result.id, result.channels, options=result.options, runnable=runnable)
    return "\n".join([f"{result.id}  {found.line}", *found.rest]) if found else ""


def first_text(result: CaseResult) -> str:
    """Returns the first difference of a case that passes without a proof; empty if there is none."""
    first = result.first_difference
    verdict = result.channels["program"].verdict if first else ""
    return f"{result.id}  {verdict}; first difference: {first.sentence()}" if first else ""


def ties_text(result: CaseResult) -> str:
    """Returns the ties that rounding decided in a case: a sentence each."""
    routing = result.channels.get("routing")
    if routing is None or routing.verdict is not Verdict.TIE:
        return ""
    ties = [f"  {finding.sentence()}" for finding in routing.findings[:MOST_FINDINGS]]
    return "\n".join([f"{result.id}  routing tie: {routing.detail}", *ties])


def waived_text(result: CaseResult) -> str:
    """Returns the number of accepted findings by channel, with the reasons, in one line."""
    waived = [channel for channel in result.channels.values() if channel.verdict is Verdict.WAIVED]
    if not waived:
        return ""
    counts = ", ".join(f"{len(channel.findings)} of {channel.name}" for channel in waived)
    steps = dict.fromkeys(finding.next_step for channel in waived for finding in channel.findings)
    reasons = "; ".join(step.removeprefix(PREFIX) for step in steps)
    return f"{result.id}  findings waived: {counts} ({reasons})"


def all_text(result: CaseResult) -> str:
    """Returns every finding of the channels that block or are waived, a sentence each."""
    waived = (one for one in result.channels.values() if one.verdict is Verdict.WAIVED)
    lines = []
    for channel in (*result.blocking, *waived):
        lines.append(f"{result.id}  {channel.name} {channel.verdict}: {channel.detail}")
        lines += [f"  {finding.sentence()}" for finding in channel.findings]
    return "\n".join(lines)


def notes_text(result: CaseResult) -> str:
    """Returns the notes of a case, which do not affect its verdict: a sentence each."""
    lines = [f"  {name}: {note.sentence()}" for name, one in result.channels.items() for note in one.notes]
    lines = shortened(lines, MOST_FINDINGS, "  ... and {} more; the JSON report lists all")
    return "\n".join([f"{result.id}  notes:", *lines]) if lines else ""


def print_tracebacks(console: Console, results: Sequence[CaseResult]) -> None:
    """Prints the traceback of every exception."""
    for result in results:
        for channel in result.channels.values():
            for finding in channel.findings:
                if finding.traceback:
                    console.print(Text(f"{result.id}  {channel.name}, {finding.where}", "bold red"))
                    console.print(finding.traceback, soft_wrap=True, markup=False, highlight=False)


def print_findings(console: Console, cases: Iterable[CaseResult], *, verbose: bool = False) -> None:
    """Prints the causes of failures, and first differences, ties, waivers and notes of the cases that pass."""
    texts = {findings_text: "bold red", first_text: "yellow", ties_text: "yellow", waived_text: "yellow"}
    texts |= {notes_text: "dim"} | ({all_text: "dim"} if verbose else {})
    for case in cases:
        for text, style in texts.items():
            head, *rest = text(case).splitlines() or [""]
            if head:
                console.print(Text(head, style), soft_wrap=True)
            if rest:
                console.print("\n".join(rest), soft_wrap=True, markup=False, highlight=False)
