"""Execution plans of one computation compared by exact proofs: batches, schedules, placements, tiles.

They are too many for the daily run, and the proof is stronger than numbers, so a separate command runs them.
"""

import dataclasses
from collections.abc import Mapping

from models_nnx.shared.config import Gather, LayerLayout, ModelConfig, MomentSharding, TrainConfig, override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.meshes import Mode
from parity.cases.case import Case, Pair
from parity.matrix.cases import OTHER_DOTS, OTHER_PROGRAM, same_flavour
from parity.matrix.decoders import Variant
from parity.matrix.pipeline import SHAPE, STORAGE, pipelined, sequential_case

__all__ = ["PAIR", "accumulated", "tiled"]

DENSE = ("llama2-7b", "llama2-70b", "gemma2-9b", "gemma3-12b", "qwen3-8b")
AHEAD = {"stages": 2, "microbatches": 2, "repeats": 2, "gather": Gather.PER_REPEAT}


def _flavour(index: int) -> Flavour:
    return list(Flavour)[index % 2]


def accumulated(flavour: Flavour, config: ModelConfig, count: int) -> Case:
    """Returns the case of a whole batch against a split batch whose gradients are added.

    Args:
        flavour: of both sides.
        config: the decoder.
        count: number of parts.
    """
    whole = Variant("plans-whole", config)
    name = f"plans-accumulate{count}"
    parts = dataclasses.replace(whole, name=name, train=TrainConfig(accumulation=count))
    sides = (whole, "single"), (parts, "single")
    return same_flavour(flavour, name, "train_step", *sides, accept=OTHER_PROGRAM)


def tiled(flavour: Flavour, config: ModelConfig, train: TrainConfig) -> Case:
    """Returns the case of a loss of all logits at once against one with a tiled vocabulary.

    Args:
        flavour: of both sides.
        config: the decoder; its head is not tied to the embedding table.
        train: has the number of tiles.
    """
    plain = Variant("plans-plain", config, dataclasses.replace(train, vocab_tiles=1))
    name = f"plans-tiles{train.vocab_tiles}"
    sides = (plain, "single"), (dataclasses.replace(plain, name=name, train=train), "single")
    accept = dataclasses.replace(
        OTHER_DOTS,
        split_dims={"*/head/kernel": (1,)},
        integer_ranges={"targets": (0, config.vocab)},
    )
    return same_flavour(flavour, name, "grad", *sides, accept=accept)


def _families(settings: Mapping[str, str]) -> list[Case]:
    """Returns cases of dense families in a pipeline against their layers in sequence: gradient and train step."""
    found = []
    for index, name in enumerate(DENSE):
        base = override(tiny(preset(name)), settings)
        for program, options in (("grad", AHEAD), ("train_step", STORAGE)):
            mode = list(Mode)[index % 2]
            found.append(
                sequential_case(f"plans-{name}", _flavour(index), pipelined(base, options), mode, program)
            )
    return found


def _places(settings: Mapping[str, str]) -> list[Case]:
    """Returns cases of a pipeline with moments sharded like its parameters against one with ZeRO-1 moments."""
    config = pipelined(override(tiny(preset("llama2-70b")), settings), AHEAD)
    plain = Variant("plans-pipeline", config, shape=SHAPE)
    spread = dataclasses.replace(
        plain, name="plans-pipeline-zero1", train=TrainConfig(moments=MomentSharding.ZERO1)
    )
    return [
        same_flavour(
            _flavour(index),
            spread.name,
            "train_step",
            (plain, f"data2.stage2.fsdp2-{mode}"),
            (spread, f"data2.stage2.fsdp2-{mode}"),
            accept=OTHER_PROGRAM,
        )
        for index, mode in enumerate(Mode)
    ]


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the plans."""
    base = override(dataclasses.replace(tiny(preset("llama2-70b")), layers=2), settings)
    batches = [
        accumulated(_flavour(index), dataclasses.replace(base, layout=layout), count)
        for index, (count, layout) in enumerate(
            ((2, LayerLayout.SCANNED), (4, LayerLayout.UNROLLED), (8, LayerLayout.SCANNED))
        )
    ]
    tiles = [tiled(_flavour(n // 2), base, TrainConfig(vocab_tiles=n, z_loss=1e-3 * n)) for n in (2, 4, 8)]
    return [*batches, *tiles, *_places(settings), *_families(settings)]


PAIR = Pair(name="plans", about="batches, schedules and tiles against the plain program", cases=cases)
