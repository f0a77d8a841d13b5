"""``parity bench``: the ratio of NNX to Linen, and the growth of the harness over sizes."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from parity.cli import options
from parity.cli.options import DIFFERENCE, INTERRUPTED, PARITY, checked_files, console

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
    enforce: Annotated[
        bool, typer.Option(help="Exit 1 if a ratio, or an exponent of --scaling, is above its bound.")
    ] = False,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Measure the cost against layers, leaves and devices instead.")
    ] = False,
    sizes: Annotated[
        list[str] | None,
        typer.Option(help="With --scaling: AXIS=SIZE,... such as layers=10,100 (repeatable), or full."),
    ] = None,
) -> None:
    """Measure the cost of NNX relative to Linen. Compare init, trace, lower, compile, steps and memory."""
    if scaling or sizes:
        others = {"SELECT": select, "--pair": pair, "--set": setting}
        others |= {"--rounds": rounds != ROUNDS, "--backend": backend != "cpu"}
        given = [name for name, value in others.items() if value]
        raise typer.Exit(_scaling(sizes or (), json, given if scaling else None, enforce=enforce))
    _optimise()

    from parity.cases.settings import collect, find_settings, parse_settings
    from parity.compare.backends.registry import find
    from parity.compare.timing.measure import measure_each, subjects
    from parity.report.bench import bench_record, print_bench, print_measured
    from parity.report.records import write_json

    checked_files(json=json)
    target = find(backend)
    if not target.executes:
        raise ValueError(f"--backend {backend}: this backend runs no programs; use cpu, tpu or gpu")
    table = find_settings(Path.cwd()).bench
    every = collect(tuple(pair or ()), parse_settings(setting), select=select or ())[1]
    chosen = subjects(table, every, tuple(select or ()))
    screen, found, whole = console(), [], True
    progress = lambda words: screen.print(words, style="dim", soft_wrap=True, markup=False)  # noqa: E731
    try:
        for one in measure_each(chosen, target, rounds, progress):
            found.append(one)
            print_measured(screen, one)
    except KeyboardInterrupt:
        whole = False
    print_bench(screen, found)
    if json:
        write_json(bench_record(found), json)
    if not whole:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(DIFFERENCE if enforce and any(one.above for one in found) else PARITY)


def _scaling(asked: Sequence[str], json: Path | None, others: list[str] | None, *, enforce: bool) -> int:
    """Measures and prints the cost over sizes; returns the exit code."""
    if others is None:
        raise ValueError("--sizes: needs --scaling")
    if others:
        raise ValueError(
            f"--scaling: got {others[0]} too, expected one of them; it has its own pairs and rounds"
        )
    from parity.compare.timing.scaling import measure_scaling, parse_sizes
    from parity.report.bench import print_curve, scaling_record
    from parity.report.records import check_writable, write_json
    from parity.run.run import run_case

    if json:
        check_writable(json, "--json")
    screen, found, whole = console(), [], True
    progress = lambda words: screen.print(words, style="dim", soft_wrap=True, markup=False)  # noqa: E731
    try:
        for axis, sizes in parse_sizes(asked).items():
            found.append(measure_scaling(axis, sizes, run_case, progress))
            print_curve(screen, found[-1])
    except KeyboardInterrupt:
        whole = False
    if json:
        write_json(scaling_record(found), json)
    if not whole:
        return INTERRUPTED
    return DIFFERENCE if enforce and any(curve.too_fast for curve in found) else PARITY
