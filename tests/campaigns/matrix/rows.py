"""The rows of the covering matrix, and the configuration of each row."""

import collections
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from campaigns.matrix.factors import DECODING, TRAINING, Factor
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
from parity.matrix.decoders import Variant

__all__ = ["FACTORS", "ROWS", "Configuration", "read_rows", "recipe"]

FACTORS: Mapping[str, tuple[Factor, ...]] = {"training": TRAINING, "decoding": DECODING}
"""All options of the decoders as data: the factors of each kind of program."""
ROWS = Path(__file__).with_name("rows.json")
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


class Configuration(NamedTuple):
    """Subject of a case: a variant without a name, the name of its program, and the mesh."""

    variant: Variant
    program: str
    mesh: str


def read_rows() -> dict[str, dict[str, dict[str, str]]]:
    """Returns the chosen rows, ``{space: {case: {factor: value}}}``."""
    return json.loads(ROWS.read_text(encoding="utf-8"))


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
