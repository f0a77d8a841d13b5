"""Common parts of the commands: options, exit codes, printing, and the conversion of options to a request."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from parity.run.request import Request

PARITY, DIFFERENCE, USAGE, HARNESS, INTERRUPTED = 0, 1, 2, 3, 130
NARROWEST = 100
rare: Callable[..., Any] = functools.partial(typer.Option, rich_help_panel="Rarely used")
"""``typer.Option`` for an option that few need; the help lists these in a separate section."""
progress: Callable[[str], None] = functools.partial(typer.echo, err=True)
"""Prints the next stage of a long command, apart from its results."""


Select = Annotated[
    list[str] | None,
    typer.Argument(help="Globs or prefixes of case ids, `core` or `smoke`. Default: all cases."),
]
Pairs = Annotated[
    list[str] | None, rare("--pair", metavar="MODULE:ATTR", help="A further pair; may be repeated.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Override a config field in every case; may be repeated."
    ),
]
FullSize = Annotated[bool, rare("--full-size", help="The published sizes instead of the small ones.")]
Json = Annotated[Path | None, typer.Option(help="Write the report to this file.")]
Html = Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML page.")]
Junit = Annotated[Path | None, rare("--junit", help="Write the report as JUnit XML.")]
Markdown = Annotated[Path | None, typer.Option("--markdown", help="Write a summary as Markdown.")]
Annotations = Annotated[
    Path | None, rare("--annotations", help="Write GitHub annotations; /dev/stdout prints them.")
]
Part = Annotated[
    str | None,
    rare(
        "--shard",
        metavar="PART/PARTS",
        help="Run one part of the cases, such as 3/8; `parity report` joins the reports.",
    ),
]
Since = Annotated[
    list[Path] | None,
    typer.Option(
        "--since",
        metavar="FILE",
        help="Show the changes since an earlier report; may be repeated, oldest first.",
    ),
]
Cached = Annotated[
    bool, typer.Option("--cached", help="Reuse the verdicts of passed cases, as long as nothing has changed.")
]
Workers = Annotated[int | None, rare("--workers", min=1, help="Parallel processes. Default: one per core.")]


class _Screen(Console):
    """A console whose reader may close the pipe, as ``head`` does: the run then ends as if interrupted."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("parity: the output pipe is closed; stopping", file=sys.stderr)
        raise KeyboardInterrupt


def console(narrowest: int = NARROWEST) -> Console:
    """Returns a console; without a terminal its width is at least that of the table of cases."""
    plain = _Screen(emoji=False)  # else the `:100:` of a file and line is printed as a picture
    return plain if plain.is_terminal else _Screen(emoji=False, width=max(narrowest, plain.width))


def echo(words: str, style: str = "") -> None:
    """Prints text exactly as it is, without markup or added line breaks."""
    console().print(words, style=style, soft_wrap=True, markup=False, highlight=False)


def checked_files(**paths: Path | None) -> dict[str, Path]:
    """Returns the requested output files by name; ValueError if one cannot be written, or two options name one."""
    from parity.report.records import check_writable

    files = {name: path for name, path in paths.items() if path}
    for name, path in files.items():
        twin = next((other for other in files if other != name and files[other] == path), None)
        if twin and not path.is_char_device():
            raise ValueError(f"--{twin} and --{name}: both name {path}; give each a separate file")
        check_writable(path, f"--{name}")
    return files


def make_request(
    select: list[str] | None = None,
    pairs: list[str] | None = None,
    settings: list[str] | None = None,
    *,
    shard: str | None = None,
    **fields: Any,
) -> "Request":
    """Returns the request of the command line; ``fields`` are other fields of `Request`."""
    from parity.cases.settings import parse_settings
    from parity.run.request import Request, Shard

    return Request.of(
        Path.cwd(),
        select=tuple(select or ()),
        pairs=tuple(pairs or ()),
        settings=tuple(parse_settings(settings).items()),
        shard=Shard.parse(shard) if shard else None,
        **fields,
    )


NEW = {
    "--demand": "--require",
    "--remember": "--cached",
    "--fresh": "--refresh",
    "--compare": "python tests/campaigns records",
    "--last-failed": "pytest -m parity --lf",
    "--no-cache": '[tool.parity] cache = ""',
    "--no-compile-cache": '[tool.parity] cache = ""',
    "--compile-gib": "[tool.parity] compile-gib",
    "--compile-seconds": "[tool.parity] compile-seconds",
    "--axis": "--search",
    "--modulo": "--ignore-sharding",
    "--explain": "parity bisect CASE --search config",
    "--from": "parity report FILE",
    "--paranoid": "parity run --paranoid",
    "hlo": "parity inspect CASE",
    "structure": "parity inspect",
    "shardings": "parity inspect CASE",
    "flags": "parity run --channel flags",
    "--harness": "python tests/campaigns harness.overhead",
    "merge": "parity report FILES --json OUT",
    "repro": "parity bisect CASE --search none --repro FOLDER",
}
"""Used only if a command does not know a word: `--from` and `--paranoid` are still options of others."""


def renamed(error: Exception, command: str = "") -> str:
    """Returns a sentence with the new word if a usage error is about an old one; else an empty text."""
    old = getattr(error, "option_name", "") or command
    known = old.startswith("-") or getattr(getattr(error, "ctx", None), "parent", None) is None
    return f"{old} is now {NEW[old]}" if known and old in NEW else ""
