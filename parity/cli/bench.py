"""``parity bench``: the ratio of NNX to Linen, and the growth of the harness over sizes."""

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from parity.cli import options
from parity.cli.options import DIFFERENCE, INTERRUPTED, PARITY, checked_files, console, echo

OPTIMISED = "--xla_backend_optimization_level=3"
"""Flag that compiles programs as for training; other commands switch LLVM's optimisation off."""
ROUNDS = 5
notify = functools.partial(echo, style="dim")


def command(
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
        _check_scaling([name for name, value in others.items() if value], scaling=scaling)
    elif "xla_backend_optimization_level" not in (flags := os.environ.get("XLA_FLAGS", "")):
        os.environ["XLA_FLAGS"] = f"{flags} {OPTIMISED}".strip()  # compiles as for training

    from parity.report.bench import bench_record, print_bench, print_curve, print_measured
    from parity.report.records import write_json

    checked_files(json=json)
    if scaling:
        key, judge, show, measured = "scaling", "too_fast", print_curve, _curves(sizes or ())
    else:
        key, judge, show = "comparisons", "above", print_measured
        measured = _comparisons(tuple(select or ()), tuple(pair or ()), setting, backend, rounds)
    screen, found, whole = console(), [], True
    try:
        for one in measured:
            found.append(one)
            show(screen, one)
    except KeyboardInterrupt:
        whole = False
    if key == "comparisons":
        print_bench(screen, found)
    if json:
        write_json(bench_record(key, found), json)
    if not whole:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(DIFFERENCE if enforce and any(one[judge] for one in found) else PARITY)


def _comparisons(
    select: tuple[str, ...], pairs: tuple[str, ...], setting: list[str] | None, backend: str, rounds: int
) -> Iterator[dict[str, Any]]:
    from parity.cases.settings import collect, find_settings, parse_settings
    from parity.compare.backends.registry import find
    from parity.compare.timing.measure import measure_each, subjects

    target = find(backend)
    if not target.executes:
        raise ValueError(f"--backend {backend}: this backend runs no programs; use cpu, tpu or gpu")
    every = collect(pairs, parse_settings(setting), select=select)[1]
    chosen = subjects(find_settings(Path.cwd()).bench, every, select)
    return measure_each(chosen, target, rounds, notify)


def _curves(sizes: Sequence[str]) -> Iterator[dict[str, Any]]:
    from parity.compare.timing.scaling import measure_scaling, parse_sizes
    from parity.run.run import run_case

    return (measure_scaling(axis, each, run_case, notify) for axis, each in parse_sizes(sizes).items())


def _check_scaling(others: Sequence[str], *, scaling: bool) -> None:
    if not scaling:
        raise ValueError("--sizes: needs --scaling")
    if others:
        raise ValueError(
            f"--scaling: got {others[0]} too, expected one of them; it has its own pairs and rounds"
        )
