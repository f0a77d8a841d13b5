"""``parity bench``: the ratio of NNX to Linen."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from parity.cli import options
from parity.cli.options import DIFFERENCE, INTERRUPTED, PARITY, checked_files, console, echo

__all__ = ["bench"]

OPTIMISED = "--xla_backend_optimization_level=3"
"""Flag that compiles programs as for training; other commands switch LLVM's optimisation off."""
ROUNDS = 5
"""Number of measurements of each side unless the command line names another."""


def _optimise() -> None:
    """Sets the flag that compiles programs as for training."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_optimization_level" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {OPTIMISED}".strip()


def bench(
    select: options.Select = None,
    rounds: Annotated[
        int, typer.Option(min=2, help="Number of measurements of each side; the sides alternate.")
    ] = ROUNDS,
    json: options.Json = None,
    backend: Annotated[str, typer.Option(help="Where to run: cpu, tpu or gpu.")] = "cpu",
    pair: options.Pairs = None,
    setting: options.Settings = None,
    enforce: Annotated[bool, typer.Option(help="Exit 1 if a ratio is above its bound.")] = False,
) -> None:
    """Measure the cost of NNX relative to Linen. Compare init, trace, lower, compile, steps and memory."""
    _optimise()
    from parity.report.bench import bench_record, print_bench, print_measured
    from parity.report.records import write_json

    checked_files(json=json)
    screen, found, whole = console(), [], True
    try:
        for one in _comparisons(tuple(select or ()), tuple(pair or ()), setting, backend, rounds):
            found.append(one)
            print_measured(screen, one)
    except KeyboardInterrupt:
        whole = False
    print_bench(screen, found)
    if json:
        write_json(bench_record(found), json)
    if not whole:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(DIFFERENCE if enforce and any(one["above"] for one in found) else PARITY)


def _notify(words: str) -> None:
    echo(words, "dim")


def _comparisons(
    select: tuple[str, ...], pairs: tuple[str, ...], setting: list[str] | None, backend: str, rounds: int
) -> Iterator[dict[str, Any]]:
    """Returns the measurements of cases as they end.

    Raises:
        ValueError: cases or backend cannot be used.
    """
    from parity.cases.settings import collect, find_settings, parse_settings
    from parity.compare.backends.registry import find
    from parity.compare.timing.measure import measure_each, subjects

    target = find(backend)
    if not target.executes:
        raise ValueError(f"--backend {backend}: this backend runs no programs; use cpu, tpu or gpu")
    every = collect(pairs, parse_settings(setting), select=select)[1]
    chosen = subjects(find_settings(Path.cwd()).bench, every, select)
    return measure_each(chosen, target, rounds, _notify)
