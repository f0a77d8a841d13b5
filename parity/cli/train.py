"""``parity train``: a short training run of one twin, or of both, loss by loss."""

import enum
import itertools
import math
from typing import TYPE_CHECKING, Annotated

import typer

from parity.cli.options import DIFFERENCE, FullSize, parse_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Which", "train"]


class Which(enum.StrEnum):
    """Which twin trains."""

    LINEN = "linen"
    NNX = "nnx"
    BOTH = "both"


Preset = Annotated[str, typer.Option(help="A published model; shrunk unless --full-size.")]
Twin = Annotated[Which, typer.Option(help="One twin, or both with their losses compared step by step.")]
Steps = Annotated[int, typer.Option(min=1, help="How many.")]
Mesh = Annotated[
    str | None, typer.Option(help="Such as stage2.fsdp2-explicit; the pipeline's stages and fsdp2 without.")
]
Rows = Annotated[int, typer.Option(min=1, help="Rows of a batch.")]
Length = Annotated[int, typer.Option(min=16, help="Tokens of a row.")]
Seed = Annotated[int, typer.Option(min=0, help="Of parameters, dropout and data.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="FIELD=VALUE: dropout=0.1, pipeline.repeats=2, train.z_loss=0, pipeline=none."
    ),
]


def train(
    preset: Preset = "llama2-7b",
    flavour: Twin = Which.BOTH,
    steps: Steps = 15,
    mesh: Mesh = None,
    rows: Rows = 16,
    length: Length = 64,
    seed: Seed = 0,
    setting: Settings = None,
    full_size: FullSize = False,
) -> None:
    """Train a few steps on packed text, in a pipeline of 2 stages, 4 microbatches and 2 layers per stage.

    Exit code 0 where all losses are finite and, with both twins, equal to the last bit; 1 where not.
    """
    from parity.pairs.training import losses, training
    from parity.programs.build import Flavour

    settings = parse_settings(setting, example="pipeline.repeats=2")
    run = training(preset, settings, mesh, (rows, length), seed, full_size=full_size)
    chosen = list(Flavour) if flavour is Which.BOTH else [Flavour(flavour)]
    size = "" if full_size else " (tiny)"
    print(f"{preset}{size}, {run.config.layers} layers, mesh {run.mesh}, {rows} x {length} tokens")
    print(
        "  ".join(("step", *(f"{one:>12}" for one in chosen), *(["differ by"] * (len(chosen) > 1)))),
        flush=True,
    )
    streams: list[Iterator[float]] = [losses(one, run) for one in chosen]
    wrong = 0
    for step, found in enumerate(itertools.islice(zip(*streams, strict=True), steps), 1):
        gap = max(found) - min(found)
        wrong += gap != 0 or not all(map(math.isfinite, found))
        columns = [f"{step:4}", *(f"{loss:12.8f}" for loss in found), *([f"{gap:9.2g}"] * (len(found) > 1))]
        print("  ".join(columns), flush=True)
    if wrong:
        print(f"{wrong} of {steps} steps differ or are not finite")
        raise typer.Exit(DIFFERENCE)
    print(f"{steps} steps" + (", equal bits in both twins" if len(chosen) > 1 else ""))
