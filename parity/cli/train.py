"""``parity train``: a short training run of one twin, or of both, with the loss of each step."""

import enum
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parity.cli.options import DIFFERENCE, FullSize

if TYPE_CHECKING:
    from parity.matrix.training import Trainer


class Which(enum.StrEnum):
    """The twins to train."""

    LINEN = "linen"
    NNX = "nnx"
    BOTH = "both"


NEVER = 1_000_000_000


def command(
    preset: Annotated[
        str, typer.Option("--preset", "--family", help="A published model; small sizes unless --full-size.")
    ] = "llama2-7b",
    flavour: Annotated[
        Which, typer.Option(help="Twin to train, or both; the losses of both are compared at each step.")
    ] = Which.BOTH,
    steps: Annotated[
        int, typer.Option(min=1, help="Number of steps; after --resume, of further steps.")
    ] = 15,
    mesh: Annotated[
        str | None,
        typer.Option(
            help="Mesh, such as stage2.fsdp2-explicit. Default: the stages of the pipeline and fsdp2."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the batch of each replica.")] = 16,
    length: Annotated[int, typer.Option(min=16, help="Tokens in a row.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Seed of parameters, dropout and data.")] = 0,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Override a field, FIELD=VALUE: dropout=0, pipeline=none, pipeline.repeats=2, train.z_loss=0, "
            "mtp.depth=2, diloco.period=6.",
        ),
    ] = None,
    full_size: FullSize = False,
    save: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints; each saved step has its own.")
    ] = None,
    save_every: Annotated[
        int,
        typer.Option(min=1, show_default=False, help="Steps between checkpoints. Default: one at the end."),
    ] = NEVER,
    resume: Annotated[
        Path | None,
        typer.Option(help="Continue from a checkpoint of either twin, or from the last one in a folder."),
    ] = None,
) -> None:
    """Train a few steps on packed text. By default in a pipeline of 2 stages, 4 microbatches and 2 layers per stage.

    Exit code 0 if all losses are finite and, with both twins, equal bit for bit; else 1.
    """
    from parity.builds.build import Flavour
    from parity.cases.settings import parse_settings
    from parity.matrix.training import Trainer, check_save, earlier, training

    settings = parse_settings(setting, example="pipeline.repeats=2")
    run = training(preset, settings, mesh, (rows, length), seed, full_size=full_size)
    start = earlier(resume, run) if resume else None
    chosen = list(Flavour) if flavour is Which.BOTH else [Flavour(flavour)]
    print(run.title)
    if start:
        print(f"from {start}")
    header = ("step", *(f"{one:>12}" for one in chosen), *(["differ by"] * (len(chosen) > 1)))
    print("  ".join(header), flush=True)
    trainers = [Trainer(one, run, start) for one in chosen]
    done = trainers[0].done
    keep = [
        step for step in range(done + 1, done + steps + 1) if step % save_every == 0 or step == done + steps
    ]
    if save:
        check_save(save, keep, trainers[0].named())
    wrong = _loop(trainers, steps, save, keep)
    if wrong:
        print(f"{wrong} of {steps} steps differ or are not finite")
        raise typer.Exit(DIFFERENCE)
    print(f"{steps} steps" + (", equal bits in both twins" if len(chosen) > 1 else ""))


def _loop(trainers: "Sequence[Trainer]", steps: int, save: Path | None, keep: list[int]) -> int:
    """Trains, prints and saves; returns the number of steps with different or non-finite losses."""
    wrong, first = 0, trainers[0]
    for _ in range(steps):
        found = [trainer.advance() for trainer in trainers]
        gap = max(found) - min(found)
        wrong += gap != 0 or not all(map(math.isfinite, found))
        columns = [
            f"{first.done:4}",
            *(f"{loss:12.8f}" for loss in found),
            *([f"{gap:9.2g}"] * (len(found) > 1)),
        ]
        print("  ".join(columns), flush=True)
        if save and first.done in keep:
            wrong += _save(trainers, save)
    return wrong


def _save(trainers: "Sequence[Trainer]", save: Path) -> bool:
    """Writes one checkpoint for all twins if their states agree; returns True if they differ."""
    from parity.builds.tree import differing, to_host

    first, *others = trainers
    saved = to_host(first.named())
    unequal = [name for other in others for name in differing(saved, to_host(other.named()))]
    if unequal:
        print(f"not saved: the twins differ in {len(unequal)} leaves, first {unequal[0]}", flush=True)
        return True
    print(f"saved {first.save(save)}", flush=True)
    return False
