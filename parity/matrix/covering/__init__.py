"""Combinations of all options: a covering array over the options of the decoders, mostly compared by proof."""

import collections
import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from models_nnx.shared.config import (
    AttentionConfig,
    DilocoConfig,
    MlpConfig,
    ModelConfig,
    MoeConfig,
    MtpConfig,
    PipelineConfig,
    TrainConfig,
)
from parity.cases.case import Case, Pair
from parity.matrix.cases import ONE_STRUCTURE, twins
from parity.matrix.covering.factors import DECODING, TRAINING, Factor
from parity.matrix.decoders import Variant

__all__ = ["PAIR", "PATH", "SPACES", "Configuration", "read_rows", "recipe"]

SPACES: Mapping[str, tuple[Factor, ...]] = {"training": TRAINING, "decoding": DECODING}
"""All options of the decoders as data: the factors of each kind of program."""
PATH = Path(__file__).with_name("cases.json")
SHAPE = (32, 40)
"""Shape of a batch; every mesh, half a batch and four microbatches divide its rows."""
CYCLES = 2
"""Number of cycles of layers without a pipeline: two make a loop, one would not."""
SIZES: Mapping[str, Any] = {
    "vocab": 272,
    "embed": 48,
    "attention.heads": 6,
    "mlp.hidden": 80,
    "moe.top_k": 5,
    "moe.hidden": 56,
}
"""Pairwise distinct sizes that all meshes divide."""
OWN: Mapping[str, Any] = {"remainder": 0, "program": "train_step", "mesh": "", "mode": "auto"}
"""Fields that are not of a config, with their defaults."""
RUN_EVERY = 16
"""One case in this many is also compiled and run, even if proved: the last one without the factor `HEAVY`."""
HEAVY = ("repeats", "repeats")
"""The value that makes a case take minutes to compile: a pipeline with several repeats."""

BY_PROOF = {
    "rng": "by proof alone; the cases that run compare draws as well",
    "retrace": "by proof alone; the cases that run are traced again as well",
}
RUN = dataclasses.replace(ONE_STRUCTURE, paranoid=True)
PROVED = dataclasses.replace(ONE_STRUCTURE, not_applicable=BY_PROOF)


class Configuration(NamedTuple):
    """Subject of a case: a variant without a name, the name of its program, and the mesh."""

    variant: Variant
    program: str
    mesh: str


def read_rows() -> dict[str, dict[str, dict[str, str]]]:
    """Returns the chosen rows, ``{space: {case: {factor: value}}}``."""
    return json.loads(PATH.read_text(encoding="utf-8"))


def recipe(factors: Iterable[Factor], row: Mapping[str, str]) -> Configuration:
    """Returns the configuration of a row.

    Args:
        factors: those of the row; further ones are ignored.
        row: ``{factor: value}``.

    Raises:
        ConfigError: the options are incompatible.
    """
    fields = {**SIZES, **OWN}
    for factor in factors:
        if factor.name in row:
            fields |= factor.values[row[factor.name]]
    parts: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    for field, value in fields.items():
        part, _, name = field.rpartition(".")
        parts[part][name] = value
    remainder, program, axes, mode = (parts[""].pop(name) for name in OWN)
    stages = PipelineConfig(**parts["pipeline"]) if parts["pipeline"] else None
    diloco = DilocoConfig(**parts["diloco"]) if parts["diloco"] else None
    attention = AttentionConfig(**parts["attention"])
    cycles = stages.layers_inside + stages.layers_outside if stages else CYCLES
    config = ModelConfig(
        **parts[""],
        attention=attention,
        mlp=MlpConfig(**parts["mlp"]),
        moe=MoeConfig(**parts["moe"]) if "experts" in parts["moe"] else None,
        mtp=MtpConfig(**parts["mtp"]) if parts["mtp"] else None,
        layers=parts[""].get("dense_layers", 0) + cycles * len(attention.cycle) + remainder,
        pipeline=stages,
    )
    axes = ".".join(filter(None, [f"stage{stages.stages}" if stages else "", axes]))
    axes = f"replica{diloco.replicas}.{axes}" if axes and diloco else axes
    return Configuration(
        variant=Variant("", config, TrainConfig(**parts["train"]), SHAPE, diloco),
        program="diloco_step" if diloco else program,
        mesh=f"{axes}-{mode}" if axes else "single",
    )


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns a case per chosen row."""
    chosen = read_rows()
    matrix = []
    for space, factors in SPACES.items():
        run = _run(list(chosen[space].items()))
        for name, row in chosen[space].items():
            variant, program, mesh = recipe(factors, row)
            variant = dataclasses.replace(variant.override(settings), name=f"covering-{name}")
            matrix.append(twins(variant, program, mesh, RUN if name in run else PROVED))
    return matrix


def _run(rows: list[tuple[str, Mapping[str, str]]]) -> set[str]:
    groups = (rows[start : start + RUN_EVERY] for start in range(0, len(rows) - RUN_EVERY + 1, RUN_EVERY))
    light = ([name for name, row in group if HEAVY not in row.items()] for group in groups)
    return {names[-1] for names in light}


PAIR = Pair(name="covering", about="every option of the decoders with every other, by proof", cases=cases)
