"""``parity train``: a run of the decoder twins on synthetic data, step by step, from scratch or a checkpoint."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from models_nnx.shared import store
from models_nnx.shared.config import (
    ConfigError,
    DilocoConfig,
    ModelConfig,
    MtpConfig,
    PipelineConfig,
    override,
)
from models_nnx.shared.data import packed_batch
from models_nnx.shared.presets import preset, tiny
from models_nnx.shared.sharding import resolve
from parity.builds.build import Flavour
from parity.builds.meshes import MeshSpec, Mode
from parity.compare.backends.backend import quiet
from parity.matrix.decoders import Variant, input_specs, replica_batches
from parity.matrix.pipeline import staged

PIPELINE = PipelineConfig(stages=2, microbatches=4, layers_per_stage=2)
DILOCO = DilocoConfig(replicas=2, period=4)
PARTS: Mapping[str, str] = {
    "pipeline": "pipeline.stages=2",
    "mtp": "mtp.depth=2",
    "diloco": "diloco.period=6",
}
"""Optional parts of a run, each with an example of a setting."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(Variant):
    """Description of a training run of a variant; ``asked`` are the options, which a resumed run must have, too."""

    mesh: MeshSpec
    seed: int
    asked: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        """A description of the run in one line."""
        size = "" if self.asked.get("full_size") else " (tiny)"
        settings = [f"{name}={text}" for name, text in self.asked["settings"].items()]
        words = [
            f"{self.asked['preset']}{size}",
            f"{self.config.layers} layers",
            *settings,
            f"mesh {self.mesh}",
        ]
        rows, length = self.shape
        return ", ".join([*words, f"{rows} x {length} tokens"]) + (" a replica" if self.diloco else "")


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

    Raises:
        ValueError: an unknown preset, an invalid setting, or a mesh that does not fit.
    """
    mtp, pipeline, diloco = (_part(part, settings) for part in ("mtp", "pipeline", "diloco"))
    config = preset(name) if full_size else tiny(preset(name))
    if mtp is None:
        config = dataclasses.replace(config, mtp=None)
    elif mtp:
        config = dataclasses.replace(config, mtp=override(config.mtp or MtpConfig(), mtp))
    if pipeline is not None:
        config = staged(config, override(PIPELINE, pipeline))
    replicas = override(DILOCO, diloco) if diloco else None
    run = Training(
        name=name,
        config=config,
        diloco=replicas,
        mesh=MeshSpec.parse(mesh or _places(config, replicas)),
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
    ).override({field: text for field, text in settings.items() if field.partition(".")[0] not in PARTS})
    if run.mesh.mode is Mode.EXPLICIT:  # the models check all else
        microbatches = run.train.accumulation * (config.pipeline.microbatches if config.pipeline else 1)
        rows, places = shape[0] // microbatches, run.mesh.abstract()
        resolve(("activation_batch",), (rows,), config.rules, places, "rows of a microbatch")
    return run


def _part(part: str, settings: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the settings of a part of the run, by field; None if the run is to be without it."""
    fields = {name[len(part) + 1 :]: text for name, text in settings.items() if name.startswith(f"{part}.")}
    if (text := settings.get(part)) is None:
        return fields
    expected = f"none, or its fields, such as {PARTS[part]}"
    if text != "none":
        raise ConfigError(part, text, expected)
    if fields:
        raise ConfigError(part, f"none and {part}.{next(iter(fields))}", expected)
    return None


def _places(config: ModelConfig, diloco: DilocoConfig | None) -> str:
    """Returns the default mesh of a run: two devices of each kind."""
    axes = [f"replica{math.gcd(diloco.replicas, 2)}"] if diloco else []
    axes += [f"stage{config.pipeline.stages}"] if config.pipeline else []
    return ".".join([*axes, "fsdp2"])


class Trainer:
    """A training run of one twin; each call of `advance` makes one step.

    Args:
        resume: a checkpoint of either twin to continue from; None for a fresh state.
    """

    def __init__(self, flavour: Flavour, run: Training, resume: Path | None = None):
        self._run = run
        self._mesh = (
            run.mesh.on(jax.devices()) if run.mesh.axes else jax.sharding.Mesh(jax.devices()[:1], ("data",))
        )
        variant = Variant(run.name, run.config, run.train, run.shape, run.diloco, saved=True)
        self._build = variant.build(flavour)
        self._saving: Any = self._build.saving
        self._places = {path: self._on(spec) for path, spec in self._build.specs(self._mesh).items()}
        program = self._build.programs["diloco_step" if run.diloco else "train_step"]

        def step(state: dict[str, Any], batch: dict[str, Any]) -> tuple[dict[str, Any], jax.Array]:
            outputs = program.function(state, batch)
            return outputs["state"], outputs["values"]["loss"]

        self._create = jax.jit(self._build.create, out_shardings=self._places)
        self._step = jax.jit(step, donate_argnums=0, out_shardings=(self._places, None))
        self._begin(resume)

    def _begin(self, resume: Path | None) -> None:
        if resume:
            like = {
                path: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=self._places[path])
                for path, leaf in self._build.abstract.items()
            }
            self._state = self._saving.load(resume, like)
        else:
            self._state = self._create(jax.random.key(self._run.seed))
        self.done = int(self.named()["outer/step" if self._run.diloco else "step"])

    def advance(self) -> float:
        """Makes one step and returns its loss, the mean over replicas if there are several."""
        batch = self._batch()
        specs = input_specs(self._run.config, batch, self._mesh)
        batch = {name: jax.device_put(array, self._on(specs[name])) for name, array in batch.items()}
        with jax.set_mesh(self._mesh), quiet():  # the first step compiles, with messages
            self._state, loss = self._step(self._state, batch)
        self.done += 1
        return float(np.mean(np.asarray(loss, np.float64)))

    def _batch(self) -> dict[str, np.ndarray]:
        run, seed = self._run, self._run.seed + self.done
        if run.diloco:
            return replica_batches(run.shape, run.diloco.replicas, seed)
        return packed_batch(*run.shape, seed)

    def _on(self, spec: jax.sharding.PartitionSpec) -> jax.sharding.NamedSharding:
        return jax.sharding.NamedSharding(self._mesh, spec)

    def named(self) -> Mapping[str, jax.Array]:
        """Returns the state under its names on disk."""
        return self._saving.named(self._state)

    def save(self, folder: Path) -> Path:
        """Writes the state to this step's checkpoint folder."""
        return self._saving.save(self._state, store.step_folder(folder, self.done), self._run.asked)


def earlier(folder: Path, run: Training) -> Path:
    """Returns the last checkpoint in a folder; CheckpointError if there is none, or if it is of another run."""
    found = store.find(folder)
    about = store.inspect(found).about
    if other := [name for name, value in run.asked.items() if about.get(name) != value]:
        got, expected = (
            ", ".join(f"{name} {options.get(name)!r}" for name in other) for options in (about, run.asked)
        )
        raise store.CheckpointError(
            f"{found}: got a run with {got}, expected {expected}; give the options of the saved run"
        )
    return found


def check_save(folder: Path, steps: Iterable[int], state: Mapping[str, jax.Array]) -> None:
    """Raises CheckpointError, before training starts, if checkpoints of some steps cannot be written to a folder."""
    try:
        store.check_writable(folder, state)
    except store.CheckpointError as error:
        raise store.CheckpointError(f"--save {error}") from error
    for step in steps:
        if store.step_folder(folder, step).exists():
            raise store.CheckpointError(
                f"--save {folder}: already has step {step}, expected a folder without; name another, or --resume it"
            )
