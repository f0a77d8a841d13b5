"""Descriptions of ``parity train`` runs: a preset, its settings, and optional replicas."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax

from models_nnx.shared.config import (
    ConfigError,
    DilocoConfig,
    ModelConfig,
    MtpConfig,
    PipelineConfig,
    TrainConfig,
    override,
)
from models_nnx.shared.ops.stages import require_stages
from models_nnx.shared.presets import preset, tiny
from models_nnx.shared.sharding import resolve
from parity.builds.meshes import MeshSpec, Mode

__all__ = ["Training", "training"]

PIPELINE = PipelineConfig(stages=2, microbatches=4, layers_per_stage=2)
DILOCO = DilocoConfig(replicas=2, period=4)
PARTS: Mapping[str, str] = {
    "pipeline": "pipeline.stages=2",
    "mtp": "mtp.depth=2",
    "diloco": "diloco.period=6",
}
"""Optional parts of a run, each with an example of a setting."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """Description of a training run.

    Args:
        config, train: the model and its step.
        diloco: how replicas synchronise; None for one model.
        mesh: mesh of the run.
        shape: rows and length of a batch, or of one replica's batch if there are several.
        seed: of parameters, dropout and data.
        asked: the requested options as JSON values; a resumed run must have the same.
    """

    config: ModelConfig
    train: TrainConfig
    diloco: DilocoConfig | None = None
    mesh: MeshSpec
    shape: tuple[int, int]
    seed: int
    asked: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        """A description of the run in one line."""
        size = "" if self.asked.get("full_size") else " (tiny)"
        words = [f"{self.asked.get('preset')}{size}", f"{self.config.layers} layers"]
        if self.config.mtp:
            words.append(f"{self.config.mtp.depth} further tokens")
        if self.diloco:
            parts = f" in {self.diloco.fragments} fragments" if self.diloco.fragments > 1 else ""
            words.append(
                f"{self.diloco.replicas} replicas that synchronise every {self.diloco.period} steps{parts}"
            )
        rows, length = self.shape
        return ", ".join([*words, f"mesh {self.mesh}", f"{rows} x {length} tokens"]) + (
            " a replica" if self.diloco else ""
        )


def training(
    name: str,
    settings: Mapping[str, str],
    mesh: str | None,
    shape: tuple[int, int],
    seed: int = 0,
    *,
    full_size: bool = False,
) -> Training:
    """Returns a run of a preset, by default in a pipeline of 2 stages, 4 microbatches and 2 layers per stage.

    Args:
        name: the preset, in its tiny version unless ``full_size``.
        settings: ``{"pipeline.repeats": "2", "train.accumulation": "2", "dropout": "0.1"}``; ``pipeline=none``
            for layers in sequence, ``mtp.depth`` for predictors of further tokens, ``diloco.period`` or another
            of its fields for replicas.
        mesh: such as ``stage2.fsdp2-explicit``; by default replicas, stages and ``fsdp2``.
        shape: rows and length of a batch.
        seed: of parameters, dropout and data.

    Raises:
        ConfigError: an unknown preset, or an invalid setting.
        ShardingError: the mesh does not fit the stages or the rows.
        ValueError: the mesh cannot be parsed.
    """
    groups = _grouped(settings)
    without = [part for part in PARTS if _is_none(part, groups)]
    config = preset(name) if full_size else tiny(preset(name))
    if "mtp" in without:
        config = dataclasses.replace(config, mtp=None)
    elif groups["mtp"]:
        config = dataclasses.replace(config, mtp=override(config.mtp or MtpConfig(), groups["mtp"]))
    if "pipeline" not in without:
        config = _staged(config, override(PIPELINE, groups["pipeline"]), groups[""].get("layers", ""))
    diloco = override(DILOCO, groups["diloco"]) if groups["diloco"] else None
    run = Training(
        config=override(config, groups[""]),
        train=override(TrainConfig(), groups["train"]),
        diloco=diloco,
        mesh=MeshSpec.parse(mesh or _places(config, diloco)),
        shape=shape,
        seed=seed,
        asked={
            "preset": name,
            "settings": dict(settings),
            "rows": shape[0],
            "length": shape[1],
            "seed": seed,
            "full_size": full_size,
        },
    )
    _check_places(run)
    return run


def _check_places(run: Training) -> None:
    """Checks early the conditions that the models check only during the slow tracing.

    Raises:
        ShardingError: the mesh does not fit the stages, or an explicit one does not fit the rows of a microbatch.
        ConfigError: the microbatches do not divide the rows.
    """
    (rows, _), pipeline, mesh = run.shape, run.config.pipeline, run.mesh.abstract()
    with jax.sharding.use_abstract_mesh(mesh):
        if pipeline:
            require_stages(pipeline.stages)
    parts = {"train.accumulation": run.train.accumulation, "pipeline.microbatches": 1}
    if pipeline:
        parts["pipeline.microbatches"] = pipeline.microbatches
    for field, count in parts.items():
        if rows % count:
            expected = f"a number that divides {rows} rows; change the batch or {field}"
            raise ConfigError(field, count, expected)
        rows //= count
    if run.mesh.mode is Mode.EXPLICIT:
        resolve(("activation_batch",), (rows,), run.config.rules, mesh, "rows of a microbatch")


def _grouped(settings: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Returns the settings by prefix; those of the model are under an empty name."""
    groups: dict[str, dict[str, str]] = {name: {} for name in (*PARTS, "train", "")}
    for field, text in settings.items():
        group, _, rest = field.partition(".")
        group, rest = (group, rest) if rest and group in groups else ("", field)
        groups[group][rest] = text
    return groups


def _is_none(part: str, groups: dict[str, dict[str, str]]) -> bool:
    """Removes the setting of a part and returns True if it was none.

    Raises:
        ConfigError: it has another value, or the part has further settings.
    """
    text = groups[""].pop(part, None)
    expected = f"none, or its fields, such as {PARTS[part]}"
    if text not in (None, "none"):
        raise ConfigError(part, text, expected)
    if text and groups[part]:
        raise ConfigError(part, f"none and {part}.{next(iter(groups[part]))}", expected)
    return text is not None


def _staged(config: ModelConfig, pipeline: PipelineConfig, layers: str) -> ModelConfig:
    """Returns a model in a pipeline; the number of layers follows from the pipeline unless it is set."""
    cycles = pipeline.layers_inside + pipeline.layers_outside
    fitting = config.dense_layers + cycles * len(config.attention.cycle)
    chosen = int(layers) if layers.isdecimal() else fitting
    return dataclasses.replace(config, layers=chosen, pipeline=pipeline)


def _places(config: ModelConfig, diloco: DilocoConfig | None) -> str:
    """Returns the default mesh of a run: two devices of each kind."""
    axes = [f"replica{math.gcd(diloco.replicas, 2)}"] if diloco else []
    axes += [f"stage{config.pipeline.stages}"] if config.pipeline else []
    return ".".join([*axes, "fsdp2"])
