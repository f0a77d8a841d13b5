"""Common parts of the commands: options, exit codes, and the conversion of options to a request."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from parity.cli.help import RARE

if TYPE_CHECKING:
    from parity.run.request import Request

__all__ = [
    "DIFFERENCE",
    "HARNESS",
    "INTERRUPTED",
    "PARITY",
    "USAGE",
    "Annotations",
    "CompileGib",
    "CompileSeconds",
    "FullSize",
    "Html",
    "Json",
    "Junit",
    "Markdown",
    "NoCache",
    "Pairs",
    "Part",
    "Select",
    "Settings",
    "Since",
    "Workers",
    "asked_forms",
    "console",
    "limits",
    "make_request",
]

PARITY, DIFFERENCE, USAGE, HARNESS, INTERRUPTED = 0, 1, 2, 3, 130
NARROWEST = 100

Select = Annotated[
    list[str] | None,
    typer.Argument(help="Globs or prefixes of case ids, `core` or `smoke`; all cases without."),
]
Pairs = Annotated[
    list[str] | None,
    typer.Option("--pair", help="A further pair, module:ATTRIBUTE; may be repeated.", rich_help_panel=RARE),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a config field in every case, FIELD=VALUE; may be repeated."),
]

FullSize = Annotated[
    bool,
    typer.Option("--full-size", help="The published sizes instead of the small ones.", rich_help_panel=RARE),
]
Json = Annotated[Path | None, typer.Option(help="Write the report to this file.")]
Html = Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML page.")]
Junit = Annotated[
    Path | None, typer.Option("--junit", help="Write the report as JUnit XML.", rich_help_panel=RARE)
]
Markdown = Annotated[Path | None, typer.Option("--markdown", help="Write a summary as Markdown.")]
Annotations = Annotated[
    Path | None,
    typer.Option(
        "--annotations", help="Write GitHub annotations; /dev/stdout prints them.", rich_help_panel=RARE
    ),
]
Part = Annotated[
    str | None,
    typer.Option(
        "--shard",
        help="Run one part of the cases, such as 3/8; `parity report` joins their reports.",
        rich_help_panel=RARE,
    ),
]
Since = Annotated[
    list[Path] | None,
    typer.Option("--since", help="An earlier report: what changed; may be repeated, the oldest first."),
]


class _Screen(Console):
    """A console whose reader may close the pipe, as ``head`` does: the run then ends as if interrupted."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("parity: nobody reads the output any more; the run ends here", file=sys.stderr)
        raise KeyboardInterrupt


def console(narrowest: int = NARROWEST) -> Console:
    """Returns a console.

    Args:
        narrowest: least width without a terminal; by default that of the table of cases.
    """
    plain = _Screen()
    return plain if plain.is_terminal else _Screen(width=max(narrowest, plain.width))


def asked_forms(**paths: Path | None) -> dict[str, Path]:
    """Returns the requested forms of a report, ``{name: file}``.

    Args:
        **paths: file by name of the form; None if it is not requested.

    Raises:
        ValueError: two of them name one file.
    """
    asked = {name: path for name, path in paths.items() if path}
    for name, path in asked.items():
        twin = next((other for other in asked if other != name and asked[other] == path), None)
        if twin and not path.is_char_device():
            raise ValueError(f"--{twin} and --{name}: got {path} for both, expected two files")
    return asked


Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Processes at once; without it, one a core.", rich_help_panel=RARE),
]
NoCache = Annotated[
    bool,
    typer.Option(
        "--no-compile-cache", help="Leave the cache of compiled programs alone.", rich_help_panel=RARE
    ),
]
CompileGib = Annotated[
    float | None,
    typer.Option("--compile-gib", min=0.1, help="Host memory that compiles may take.", rich_help_panel=RARE),
]
CompileSeconds = Annotated[
    float | None,
    typer.Option("--compile-seconds", min=0.1, help="Time that one compile may take.", rich_help_panel=RARE),
]


def limits(
    *,
    no_cache: bool = False,
    workers: int | None = None,
    compile_gib: float | None = None,
    compile_seconds: float | None = None,
) -> dict[str, Any]:
    """Returns the given limits, by their names in ``[tool.parity]``."""
    given = {
        "workers": workers,
        "cache": "" if no_cache else None,
        "compile-gib": compile_gib,
        "compile-seconds": compile_seconds,
    }
    return {name: value for name, value in given.items() if value is not None}


def make_request(
    select: list[str] | None = None,
    pairs: list[str] | None = None,
    settings: list[str] | None = None,
    given: Mapping[str, Any] | None = None,
    **fields: Any,
) -> "Request":
    """Returns the request of the command line.

    Args:
        select: selectors of cases.
        pairs: further pairs.
        settings: each ``FIELD=VALUE``.
        given: from `limits`; they override ``[tool.parity]``.
        **fields: other fields of `Request`.
    """
    from parity.cases.settings import parse_settings
    from parity.run.request import Request

    return Request.of(
        Path.cwd(),
        given,
        select=tuple(select or ()),
        pairs=tuple(pairs or ()),
        settings=tuple(parse_settings(settings).items()),
        **fields,
    )
