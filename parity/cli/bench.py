"""``parity bench``: the ratio of NNX to Linen, and the harness's cost."""

import os
from pathlib import Path
from typing import Annotated

import typer

from parity.cli import options
from parity.cli.options import DIFFERENCE, INTERRUPTED, PARITY, checked_files, console

__all__ = ["bench"]

OPTIMISED = "--xla_backend_optimization_level=3"
"""Flag that compiles programs as for training; other commands switch LLVM's optimisation off."""


def _optimise() -> str:
    """Sets the flag that compiles programs as for training; returns the previous flags."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_optimization_level" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {OPTIMISED}".strip()
    return flags


def bench(
    select: options.Select = None,
    rounds: Annotated[
        int, typer.Option(min=2, help="Number of measurements of each side; the sides alternate.")
    ] = 5,
    json: options.Json = None,
    backend: Annotated[str, typer.Option(help="Where to run: cpu, tpu or gpu.")] = "cpu",
    pair: options.Pairs = None,
    setting: options.Settings = None,
    harness: Annotated[
        bool | None,
        typer.Option(help="Measure the harness itself too. Default: only if no case is selected."),
    ] = None,
    enforce: Annotated[bool, typer.Option(help="Exit 1 if a ratio is above its bound.")] = False,
) -> None:
    """Measure the cost of NNX relative to Linen. Compare init, trace, lower, compile, steps, dispatch and memory."""
    flags = _optimise()

    from parity.cases.case import select as selected
    from parity.cases.settings import collect, find_settings, parse_settings
    from parity.compare.backends.registry import find
    from parity.compare.timing.measure import measure_each, read_harness, subjects
    from parity.compare.timing.overhead import measure_overhead
    from parity.report.bench import bench_record, print_bench, print_measured
    from parity.report.records import write_json

    checked_files(json=json)
    target = find(backend)
    if not target.executes:
        raise ValueError(f"--backend {backend}: this backend runs no programs; use cpu, tpu or gpu")
    table = find_settings(Path.cwd()).bench
    pairs, settings = tuple(pair or ()), parse_settings(setting)
    every = collect(pairs, settings, select=select or ())[1]
    chosen = subjects(table, every, tuple(select or ()))
    own = read_harness(table) if (harness if harness is not None else not select) else None
    if harness and own is None:
        raise ValueError(
            "--harness: pyproject.toml has no [tool.parity.bench.harness]; add it, see docs/benchmark.md"
        )
    screen, found, overhead, whole = console(), [], None, True
    progress = lambda words: screen.print(words, style="dim", soft_wrap=True, markup=False)  # noqa: E731
    try:
        again = (pairs, tuple(settings.items()), str(Path.cwd()), None)
        for one in measure_each(chosen, target, rounds, again, progress):
            found.append(one)
            print_measured(screen, one)
        if own:
            overhead = measure_overhead(
                own, len(selected(every, own.cases)), rounds, {**os.environ, "XLA_FLAGS": flags}, progress
            )
    except KeyboardInterrupt:
        whole = False
    print_bench(screen, found, overhead)
    if json:
        write_json(bench_record(found, overhead), json)
    if not whole:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(DIFFERENCE if enforce and any(one.above for one in found) else PARITY)
