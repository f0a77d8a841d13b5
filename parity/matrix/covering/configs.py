"""Converts a row of options to a variant of the decoders, a program and a mesh."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from models_nnx.shared.config import (
    AttentionConfig,
    ConfigError,
    DilocoConfig,
    MlpConfig,
    ModelConfig,
    MoeConfig,
    MtpConfig,
    PipelineConfig,
    TrainConfig,
)
from parity.builds.meshes import MeshSpec
from parity.cases.coverage import Factor, Space
from parity.matrix.covering.factors import DECODING, TRAINING
from parity.matrix.covering.recipe import RECIPE
from parity.matrix.decoders import Variant

__all__ = ["SPACES", "WRITTEN", "Configuration", "recipe"]

CYCLES = 2
"""Number of cycles of layers without a pipeline: two make a loop, one would not."""

SIZES: Mapping[str, Mapping[str, Any]] = {
    "": {"vocab": 272, "embed": 48},
    "attention": {"heads": 6},
    "mlp": {"hidden": 80},
    "moe": {"top_k": 5, "hidden": 56},
    "pipeline": {},
    "train": {},
    "mtp": {},
    "diloco": {},
    "own": {"remainder": 0, "program": "train_step", "mesh": "", "mode": "auto"},
}
"""Pairwise distinct sizes that all meshes divide."""
WRITTEN: Mapping[tuple[tuple[str, str], ...], str] = {
    **{
        (
            ("program", program),
            ("mesh", "context_tensor"),
        ): "another mesh: one token does not divide over context"
        for program in ("generate", "sample")
    },
    (
        ("pipeline", "stages"),
        ("mode", "explicit"),
        ("dispatch", "dropless"),
    ): "none: JAX has no rule that runs a grouped product for several stages on an explicit mesh",
    **{
        (
            ("mode", "explicit"),
            ("dispatch", "dropless"),
            ("replicas", replicas),
        ): "none: JAX has no rule that runs a grouped product for several replicas on an explicit mesh"
        for replicas in ("replicas", "streaming")
    },
}
"""Combinations that the configs cannot refuse, because they do not know the mesh, with the reason; tracing fails."""
OWN = ("remainder", "program", "mesh", "mode")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
    """Subject of a case: models, program and mesh.

    Args:
        config, train: config and train of the decoder.
        diloco: how its replicas synchronise; None for one model.
        program: name of the program.
        mesh: mesh of the case.
    """

    config: ModelConfig
    train: TrainConfig
    diloco: DilocoConfig | None
    program: str
    mesh: MeshSpec

    def variant(self, name: str, shape: tuple[int, int]) -> Variant:
        """Returns the variant to build.

        Args:
            name: name of the variant.
            shape: rows and length of a batch, or of each replica's.
        """
        return Variant(name, self.config, self.train, shape, self.diloco)


def recipe(factors: Iterable[Factor], row: Mapping[str, str]) -> Configuration:
    """Returns the configuration of a row.

    Args:
        factors: those of the row; further ones are ignored.
        row: ``{factor: value}``.

    Raises:
        ConfigError: the options are incompatible.
    """
    parts = {name: dict(fields) for name, fields in SIZES.items()}
    for factor in factors:
        for field, value in factor.values[row[factor.name]].items() if factor.name in row else ():
            part, dot, name = field.rpartition(".")
            parts["own" if field in OWN else part][name if dot else field] = value
    own, pipeline = parts["own"], parts["pipeline"]
    stages = PipelineConfig(**pipeline) if pipeline else None
    diloco = DilocoConfig(**parts["diloco"]) if parts["diloco"] else None
    return Configuration(
        config=_model(parts, stages),
        train=TrainConfig(**parts["train"]),
        diloco=diloco,
        program="diloco_step" if diloco else own["program"],
        mesh=_mesh(own, stages, diloco),
    )


def _mesh(own: Mapping[str, Any], stages: PipelineConfig | None, diloco: DilocoConfig | None) -> MeshSpec:
    """Returns the mesh of a row."""
    axes = ([f"stage{stages.stages}"] if stages else []) + ([own["mesh"]] if own["mesh"] else [])
    if axes and diloco:
        axes = [f"replica{diloco.replicas}", *axes]
    return MeshSpec.parse(f"{'.'.join(axes)}-{own['mode']}" if axes else "single")


def _model(parts: Mapping[str, Mapping[str, Any]], stages: PipelineConfig | None) -> ModelConfig:
    attention = AttentionConfig(**parts["attention"])
    period, dense = len(attention.cycle), parts[""].get("dense_layers", 0)
    cycles = stages.layers_inside + stages.layers_outside if stages else CYCLES
    return ModelConfig(
        **parts[""],
        attention=attention,
        mlp=MlpConfig(**parts["mlp"]),
        moe=MoeConfig(**parts["moe"]) if "experts" in parts["moe"] else None,
        mtp=MtpConfig(**parts["mtp"]) if parts["mtp"] else None,
        layers=dense + cycles * period + parts["own"]["remainder"],
        pipeline=stages,
    )


def _space(name: str, factors: tuple[Factor, ...], *thorough: str) -> Space:
    def make(row: Mapping[str, str]) -> Configuration:
        for combination, reason in WRITTEN.items():
            if dict(combination).items() <= row.items():
                raise ConfigError(*combination[0], reason)
        return recipe(factors, row)

    return Space(name=name, factors=factors, thorough=thorough, make=make)


SPACES = (
    _space("training", TRAINING, *(factor.name for factor in RECIPE)),
    _space("decoding", DECODING),
)
