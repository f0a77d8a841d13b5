"""The command line: a thin shell around the engine.

Exit codes: 0 parity, 1 a difference, 2 wrong usage or configuration, 3 the harness itself failed,
130 interrupted.
"""

import collections
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from parity.environment import prepare
from parity.verdicts import BLOCKING, Verdict

if TYPE_CHECKING:
    from parity.execute import Order
    from parity.report import Run

__all__ = ["app", "main"]

PARITY, DIFFERENCE, USAGE, HARNESS, INTERRUPTED = 0, 1, 2, 3, 130
NARROWEST = 100

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Proves or measures that a Flax Linen model and its Flax NNX twin are the same program.",
)


@app.callback(invoke_without_command=True)
def help_without_command(context: typer.Context) -> None:
    """Prints the help when no command is given."""
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(USAGE)


Select = Annotated[
    list[str] | None, typer.Argument(help="Globs or prefixes of case ids, or `smoke`; all cases without.")
]
Pairs = Annotated[
    list[str] | None, typer.Option("--pair", help="A further pair, module:ATTRIBUTE; may be repeated.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a config field in every case, FIELD=VALUE; may be repeated."),
]

FullSize = Annotated[bool, typer.Option("--full-size", help="The published sizes instead of the small ones.")]
Json = Annotated[Path | None, typer.Option(help="Write the report to this file.")]


def console() -> Console:
    """Returns a console that never squeezes the table below 100 columns where nobody looks on."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=max(NARROWEST, plain.width))


Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes at once; without it, one a core.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compile anew what an earlier run has compiled.")]
CompileGib = Annotated[
    float | None, typer.Option("--compile-gib", min=0.1, help="Host memory that compiles may take.")
]
CompileSeconds = Annotated[
    float | None, typer.Option("--compile-seconds", min=0.1, help="Time that one compile may take.")
]


def _order(
    select: list[str] | None,
    pairs: list[str] | None,
    settings: list[str] | None,
    options: Mapping[str, Any] | None = None,
    **rest: Any,
) -> "Order":
    """Returns what the command line asks for; ``options`` go over ``[tool.parity]``."""
    from parity.compiler import Resources
    from parity.execute import Order
    from parity.settings import find_settings, resources

    overrides = []
    for setting in settings or []:
        field, separator, value = setting.partition("=")
        if not separator or not field:
            raise ValueError(f"--set {setting!r}: expected FIELD=VALUE, such as embed=96")
        overrides.append((field, value))
    given = {name: value for name, value in (options or {}).items() if value is not None}
    found = {**find_settings(Path.cwd()).resources, **resources(given, Path.cwd())}
    return Order(
        select=tuple(select or ()),
        pairs=tuple(pairs or ()),
        settings=tuple(overrides),
        workers=given.get("workers"),
        resources=Resources(**found),
        **rest,
    )


def _finish(record: "Run", json: Path | None, blocks: frozenset[Verdict] = BLOCKING) -> None:
    """Prints the findings and ends with the exit code of the run; a verdict in ``blocks`` is a difference."""
    from parity.report import print_findings

    print_findings(console(), record.results)
    if json:
        console().print(f"report: {json}", soft_wrap=True)
    if record.partial:
        raise typer.Exit(INTERRUPTED)
    found = {channel.verdict for result in record.results for channel in result.channels.values()}
    raise typer.Exit(DIFFERENCE if found & blocks else PARITY)


@app.command()
def run(
    select: Select = None,
    backend: Annotated[str, typer.Option(help="Where to compile and run.")] = "cpu",
    json: Json = None,
    pair: Pairs = None,
    setting: Settings = None,
    paranoid: Annotated[bool, typer.Option(help="Compile and run also what is proved.")] = False,
    full_size: FullSize = False,
    workers: Workers = None,
    no_cache: NoCache = False,
    compile_gib: CompileGib = None,
    compile_seconds: CompileSeconds = None,
) -> None:
    """Run cases: live progress, a table, findings, and a JSON report on demand."""
    from parity.execute import execute
    from parity.report import print_table

    options = {
        "workers": workers,
        "cache": "" if no_cache else None,
        "compile-gib": compile_gib,
        "compile-seconds": compile_seconds,
    }
    order = _order(
        select, pair, setting, options, backend=backend, full_size=full_size, paranoid=paranoid, json=json
    )
    record = execute(order, console())
    print_table(console(), record)
    _finish(record, json)


@app.command()
def prove(
    select: Select = None,
    full_size: FullSize = False,
    topology: Annotated[
        str | None, typer.Option(help="Lower for this TPU slice, which need not exist: v5p:8x8x8.")
    ] = None,
    json: Json = None,
    pair: Pairs = None,
    setting: Settings = None,
    paranoid: Annotated[bool, typer.Option(help="Run what is proved and demand equal bits.")] = False,
) -> None:
    """Prove that both sides are the same program; no compile, no run."""
    from parity.execute import execute
    from parity.matrix import VALUE_CHANNELS
    from parity.report import print_proofs

    if full_size and not topology:
        raise ValueError(
            "--full-size: needs --topology, such as v5p:2x2x1; the published sizes fit no laptop"
        )
    if paranoid and topology:
        raise ValueError(
            "--paranoid: got --topology too, expected one of them; a topology cannot run programs"
        )
    order = _order(
        select,
        pair,
        setting,
        backend=f"lower:{topology}" if topology else "cpu",
        full_size=full_size,
        channels=("program", *(VALUE_CHANNELS if paranoid else ())),
        paranoid=paranoid,
        json=json,
    )
    record = execute(order, console())
    print_proofs(console(), record)
    _finish(record, json, blocks=BLOCKING | {Verdict.UNPROVED})


@app.command("list")
def list_cases(select: Select = None, pair: Pairs = None, setting: Settings = None) -> None:
    """List pairs, variants, programs and meshes."""
    from parity.backends import known_backends
    from parity.execute import chosen

    pairs, cases = chosen(_order(select, pair, setting))
    screen = console()
    for found in pairs:
        screen.print(Text(found.name, "bold").append(f"  {found.about}", "dim"))
    groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for case in cases:
        groups[case.id.split("/")[0], str(case.mesh)].append(case.program)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("variant", "mesh", "programs"):
        table.add_column(head, overflow="fold")
    for (variant, mesh), programs in groups.items():
        table.add_row(variant, mesh, " ".join(programs))
    screen.print(table)
    screen.print(f"{len(cases)} cases; backends: {', '.join(known_backends())}")


@app.command("map")
def show_map(
    select: Annotated[str, typer.Argument(help="A pair, a variant or a case.")],
    pair: Pairs = None,
    setting: Settings = None,
) -> None:
    """Print the weight map of a pair's first matching case, and what certifies it."""
    from parity.certificate import certify
    from parity.comparison import Comparison, Workbench
    from parity.execute import chosen
    from parity.report import map_line
    from parity.tree import Role
    from parity.weights import MapError

    cases = chosen(_order([select], pair, setting))[1]
    work = Comparison(cases[0], Workbench())
    screen = console()
    screen.print(f"{cases[0].id}: {work.builds[0].name} against {work.builds[1].name}", soft_wrap=True)
    try:
        certified = certify(work)
    except MapError as error:
        for side, leaves in (("reference", error.reference), ("candidate", error.candidate)):
            for leaf in leaves:
                screen.print(Text(f"  only in the {side}: {leaf.path} {leaf.dtype}{list(leaf.shape)}", "red"))
        screen.print("no map: add the leaf to the other side, or give the pair a weight rule")
        raise typer.Exit(DIFFERENCE) from None
    for role in Role:
        rows = [one for one in certified if one.entry.role is role]
        screen.print(Text(f"{role}, {len(rows)} entries", "bold cyan"))
        for one in rows:
            screen.print(map_line(one), soft_wrap=True)
    wrong = sum(one.contradicted for one in certified)
    leaves = [len(build.leaves) for build in work.builds]
    screen.print(
        f"{leaves[0]} reference and {leaves[1]} candidate leaves in {len(certified)} entries: total, one-to-one"
        + (f"; {wrong} contradicted by the probe" if wrong else "")
    )
    raise typer.Exit(DIFFERENCE if wrong else PARITY)


@app.command()
def shardings(
    select: Annotated[
        str, typer.Argument(help="A case, or a selector; the first case with a mesh is shown.")
    ],
    html: Annotated[Path | None, typer.Option(help="Also write a page with pictures to this file.")] = None,
    pair: Pairs = None,
    setting: Settings = None,
) -> None:
    """Show where every leaf of a case lies on both sides, and what that costs per device."""
    from parity.channels import sharding
    from parity.comparison import Comparison, Workbench
    from parity.execute import chosen
    from parity.report import print_placements, write_text
    from parity.report.page import placements, shardings_page
    from parity.report.records import check_writable

    if html:
        check_writable(html, "--html")
    cases = [
        case
        for case in chosen(_order([select], pair, setting))[1]
        if case.mesh.axes and not case.not_applicable
    ]
    if not cases:
        raise ValueError(
            f"shardings {select!r}: expected a case on a mesh with comparable shardings; see `parity list`"
        )
    work, screen = Comparison(cases[0], Workbench()), console()
    result, rows = sharding(work), placements(work)
    print_placements(screen, cases[0], result, rows)
    if html:
        outcome = (str(result.verdict), result.detail, [finding.sentence() for finding in result.findings])
        write_text(shardings_page(cases[0].id, outcome, rows, dict(cases[0].mesh.axes)), html)
        screen.print(f"page: {html}", soft_wrap=True)
    raise typer.Exit(DIFFERENCE if result.verdict in BLOCKING else PARITY)


@app.command()
def hlo(
    select: Annotated[str, typer.Argument(metavar="CASE", help="A case, or a selector of one.")],
    backend: Annotated[str, typer.Option(help="Where to compile; aot:v5p:2x2x1 needs no TPU.")] = "cpu",
    json: Json = None,
    pair: Pairs = None,
    setting: Settings = None,
    full_size: FullSize = False,
    no_cache: NoCache = False,
) -> None:
    """Show loops, collectives, memory, cost and dots of both sides, before and after optimisation."""
    from parity.comparison import Comparison, Workbench
    from parity.execute import chosen
    from parity.inspection import inspect_sides
    from parity.matrix import STRUCTURE_CHANNELS
    from parity.report import print_sections, sections_record, write_json
    from parity.run import run_case

    options = {"cache": "" if no_cache else None}
    order = _order([select], pair, setting, options, backend=backend, full_size=full_size, json=json)
    cases = chosen(order)[1]
    if len(cases) > 1:
        some = ", ".join(case.id for case in cases[:3])
        raise ValueError(f"hlo {select!r}: expected one case, got {len(cases)}: {some}...; name one of them")
    bench = Workbench(paranoid=True, compiler=order.resources.compiler())
    sections = inspect_sides(Comparison(cases[0], bench))
    result = run_case(cases[0], bench, STRUCTURE_CHANNELS)
    print_sections(console(), result, sections)
    if json:
        write_json(sections_record(result, sections), json)
        console().print(f"report: {json}", soft_wrap=True)
    raise typer.Exit(DIFFERENCE if result.blocking else PARITY)


@app.command()
def doctor() -> None:
    """Show versions, devices and backends, and how to get what is missing."""
    from parity.doctor import diagnose

    screen, checks = console(), diagnose()
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in checks:
        table.add_row(check.name, check.found, Text(check.remedy, "yellow"))
    screen.print(table)
    raise typer.Exit(USAGE if any(check.needed for check in checks) else PARITY)


def main() -> None:
    """Runs the command line; every way it can end has an exit code of its own."""
    prepare()
    try:
        code = app(standalone_mode=False) or PARITY
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        code = _explain(error)
    if code == INTERRUPTED:  # a compiler thread may still be at work, and crashes when Python tears down
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _explain(error: Exception) -> int:
    """Prints an error for whom it concerns: one line for users, a traceback for us."""
    message = getattr(error, "format_message", None)  # typer's usage errors, whichever click they are made of
    if message:
        print(f"parity: {message()}; see parity --help", file=sys.stderr)
        return USAGE
    if isinstance(error, ValueError):
        print(f"parity: {error}", file=sys.stderr)
        return USAGE
    side = sys.modules.get("parity.side")
    if side and isinstance(error, side.SideError):
        print(f"parity: {str(error).splitlines()[0]}", file=sys.stderr)
        return DIFFERENCE
    traceback.print_exception(error)
    print("parity: the harness itself failed; the traceback above says where", file=sys.stderr)
    return HARNESS
