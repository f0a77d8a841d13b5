"""Short training runs of the decoder twins, step by step, on synthetic data."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from flax import nnx

import models_linen.train
import models_nnx.train
from models_nnx.config import ConfigError, ModelConfig, PipelineConfig, TrainConfig, override
from models_nnx.data import packed_batch
from models_nnx.presets import preset, tiny
from models_nnx.sharding import resolve
from parity.programs.build import Flavour
from parity.programs.meshes import MeshSpec
from parity.quiet import quiet

__all__ = ["Training", "losses", "training"]

DEFAULT = PipelineConfig(stages=2, microbatches=4, layers_per_stage=2)
BATCH_AXES = ("activation_batch", "activation_length")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """What a run trains, on what.

    Args:
        config, train: the model and its step.
        mesh: where it runs.
        shape: rows and length of a batch.
        seed: of parameters, dropout and data.
    """

    config: ModelConfig
    train: TrainConfig
    mesh: MeshSpec
    shape: tuple[int, int]
    seed: int


def training(
    name: str,
    settings: Mapping[str, str],
    mesh: str | None,
    shape: tuple[int, int],
    seed: int = 0,
    *,
    full_size: bool = False,
) -> Training:
    """Returns a run of a preset in a pipeline of 2 stages, 4 microbatches and 2 layers per stage, unless set otherwise.

    Args:
        name: the preset, shrunk unless ``full_size``.
        settings: ``{"pipeline.repeats": "2", "train.accumulation": "2", "dropout": "0.1"}``; ``pipeline=none``
            for layers in sequence.
        mesh: such as ``stage2.fsdp2-explicit``; by default the stages times ``fsdp2``.
        shape: rows and length of a batch.
        seed: of parameters, dropout and data.

    Raises:
        ConfigError: no such preset, or a setting breaks a rule.
        ValueError: the mesh is none.
    """
    groups: dict[str, dict[str, str]] = {"pipeline": {}, "train": {}, "": {}}
    for field, text in settings.items():
        group, _, rest = field.partition(".")
        groups[group if rest and group in groups else ""][rest if rest and group in groups else field] = text
    alone = groups[""].pop("pipeline", None)
    if alone not in (None, "none"):
        raise ConfigError("pipeline", alone, "none, or its fields, such as pipeline.stages=2")
    config = preset(name) if full_size else tiny(preset(name))
    pipeline = None if alone else override(DEFAULT, groups["pipeline"])
    if pipeline:
        cycles = pipeline.layers_inside + pipeline.layers_outside
        layers = config.dense_layers + cycles * len(config.attention.cycle)
        chosen = int(groups[""]["layers"]) if groups[""].get("layers", "").isdecimal() else layers
        config = dataclasses.replace(config, layers=chosen, pipeline=pipeline)
    places = f"stage{pipeline.stages}.fsdp2" if pipeline else "fsdp2"
    return Training(
        config=override(config, groups[""]),
        train=override(TrainConfig(), groups["train"]),
        mesh=MeshSpec.parse(mesh or places),
        shape=shape,
        seed=seed,
    )


def losses(flavour: Flavour, run: Training) -> Iterator[float]:
    """Yields the loss of each step of a run, for ever.

    Raises:
        ValueError: the mesh needs more devices than there are, or does not fit the model.
    """
    mesh = run.mesh.on(jax.devices()) if run.mesh.axes else jax.sharding.Mesh(jax.devices()[:1], ("data",))
    start = {Flavour.LINEN: _linen, Flavour.NNX: _nnx}[flavour]
    state, step = start(run, mesh)
    seed = run.seed
    while True:
        batch = {
            name: jax.device_put(
                array, _on(mesh, resolve(BATCH_AXES, array.shape, run.config.rules, mesh, name))
            )
            for name, array in packed_batch(*run.shape, seed).items()
        }
        with jax.set_mesh(mesh), quiet():  # the first step compiles, and the partitioner thinks aloud
            state, metrics = step(state, batch)
        yield float(metrics["loss"])
        seed += 1


Step = Callable[[Any, Any], tuple[Any, Mapping[str, jax.Array]]]


def _on(mesh: jax.sharding.Mesh, spec: jax.sharding.PartitionSpec) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(mesh, spec)


def _linen(run: Training, mesh: jax.sharding.Mesh) -> tuple[Any, Step]:
    models = models_linen.train
    batch = {name: jax.ShapeDtypeStruct(run.shape, "int32") for name in ("tokens", "segments", "positions")}
    create = functools.partial(models.create, run.config, run.train, batch=batch)
    key = jax.random.key(run.seed)
    specs = models.state_specs(run.config, run.train, jax.eval_shape(create, key), mesh)
    places = jax.tree.map(functools.partial(_on, mesh), specs)
    state = jax.jit(lambda key: models.unbox(create(key)), out_shardings=places)(key)
    step = functools.partial(models.train_step, run.config, run.train)
    return state, jax.jit(step, donate_argnums=0, out_shardings=(places, None))


def _nnx(run: Training, mesh: jax.sharding.Mesh) -> tuple[Any, Step]:
    models = models_nnx.train
    create = functools.partial(models.create, run.config, run.train)
    key = jax.random.key(run.seed)
    graphdef, example = nnx.split(nnx.eval_shape(lambda: create(key)))
    specs = models.state_specs(run.config, run.train, example, mesh)
    places = jax.tree.map(functools.partial(_on, mesh), specs)
    leaves = jax.jit(lambda key: nnx.state(create(key)), out_shardings=places)(key)

    def step(leaves, batch):
        state = nnx.merge(graphdef, leaves)
        metrics = models.train_step(run.train, state, batch)
        return nnx.state(state), metrics

    return leaves, jax.jit(step, donate_argnums=0, out_shardings=(places, None))
