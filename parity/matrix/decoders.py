"""Builds of the decoders in either flavour: named configs with their batches."""

import dataclasses
import functools
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from models_nnx import shared
from models_nnx.shared.config import AttentionKernel, DilocoConfig, ModelConfig, TrainConfig, override
from models_nnx.shared.data import packed_batch
from models_nnx.shared.ops import REPLICA
from models_nnx.shared.sharding import explain, resolve
from parity.builds.build import Build, Flavour
from parity.builds.tree import Leaf

SMALL = (8, 40)
FULL = {"remat.policy": "full"}
UNROLLED = {"layout": "unrolled"}
DROPOUT = {"dropout": "0.1"}
ACCUMULATING = {"train.accumulation": "2"}
DROPPING = {"moe.dispatch": "dropping"}
ZERO1 = {"train.moments": "zero1"}
BFLOAT16 = {"param_dtype": "bfloat16", "compute_dtype": "bfloat16"}
"""Settings that several pairs combine."""
PLAIN = TrainConfig()
SOURCES = {
    Flavour.LINEN: ("models_linen/",),
    Flavour.NNX: tuple(f"models_nnx/{file.name}" for file in Path(shared.__file__).parents[1].glob("*.py")),
}
"""Files of each flavour's models, so that a builder which makes the other flavour is detected."""
BATCH_AXES = ("activation_batch", "activation_length")


@dataclasses.dataclass(frozen=True)
class Variant:
    """A named decoder that can be built in either flavour.

    Args:
        shape: rows and length of a batch, or of one replica's batch if there are several.
        diloco: how replicas synchronise; None for one model.
        saved: True if its state can be saved and loaded.
    """

    name: str
    config: ModelConfig
    train: TrainConfig = PLAIN
    shape: tuple[int, int] = SMALL
    diloco: DilocoConfig | None = None
    saved: bool = False

    @property
    def configs(self) -> tuple[Any, ...]:
        """The configs in the order in which the models' functions take them."""
        return (self.config, self.train, *([self.diloco] if self.diloco else []))

    @property
    def fixed_axes(self) -> tuple[str, ...]:
        """The mesh axes that its config fixes."""
        return ("stage",) if self.config.pipeline else ()

    def build(self, flavour: Flavour) -> Build:
        """Returns the build; equal variants share one. ValueError if the models are not installed."""
        return _build(flavour, self)

    def exact(self, flavour: Flavour) -> Build:
        """Returns the build that computes in float64 with the plain kernel, the reference of arbitration."""
        attention = dataclasses.replace(self.config.attention, kernel=AttentionKernel.PLAIN)
        config = dataclasses.replace(
            self.config, attention=attention, param_dtype="float64", compute_dtype="float64"
        )
        return dataclasses.replace(self, name=f"{self.name} float64", config=config, saved=False).build(
            flavour
        )

    def override(self, settings: Mapping[str, str]) -> Self:
        """Returns the variant with other settings, such as ``layers``, ``train.accumulation``, ``diloco.period``."""
        own = {"train", "diloco"} if self.diloco else {"train"}
        parts: dict[str, dict[str, str]] = {"config": {}, "train": {}, "diloco": {}}
        for name, text in settings.items():
            part, _, field = name.partition(".")
            parts[part if part in own else "config"][field if part in own else name] = text
        changes = {part: override(getattr(self, part), texts) for part, texts in parts.items() if texts}
        return dataclasses.replace(self, **changes)

    def varied(self, settings: Mapping[str, str]) -> "Variant":
        """Returns the variant with other settings, and a name that contains them."""
        words = ",".join(f"{name}={text}" for name, text in settings.items())
        return dataclasses.replace(self.override(settings), name=f"{self.name} {words}")


def variants(
    family: str, base: ModelConfig, settings: Mapping[str, Mapping[str, str]], shape: tuple[int, int] = SMALL
) -> dict[str, Variant]:
    """Returns variants of one decoder by name."""
    return {
        name: Variant(f"{family}-{name}", base, shape=shape).override(own) for name, own in settings.items()
    }


@functools.cache
def unavailable(flavour: Flavour) -> str:
    """Returns why the models of a flavour cannot be built; empty if they can."""
    package = f"models_{flavour}"
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        return f"there is no package {package}: install it to run the {flavour} models"
    return ""


@functools.cache
def builder(flavour: Flavour) -> Any:
    """Returns `parity.matrix.linen` or `parity.matrix.nnx`; ValueError if the models are not installed."""
    if why := unavailable(flavour):
        raise ValueError(why)
    return importlib.import_module(f"parity.matrix.{flavour}")


@functools.cache
def _build(flavour: Flavour, variant: Variant) -> Build:
    side, config, shape = builder(flavour), variant.config, variant.shape
    inputs = functools.partial(_batch, shape)
    if variant.diloco:
        inputs = functools.partial(replica_batches, shape, variant.diloco.replicas)
    programs, options = side.programs(variant), _options(variant)
    built = side.make_build(
        f"{flavour} {variant.name}",
        side.creates(variant),
        {program: (function, options.get(program, {})) for program, function in programs.items()},
        inputs=inputs,
        specs=functools.partial(side.models(variant).state_specs, config, variant.train),
        input_specs=functools.partial(input_specs, config),
        rules=config.rules,
        explain=functools.partial(_explain, config),
        sources=SOURCES[flavour],
    )
    if not variant.saved:
        return built
    return dataclasses.replace(built, saving=side.saving(variant))


def _options(variant: Variant) -> dict[str, dict[str, Any]]:
    """Returns the options of the programs that train; replicas run past two synchronisations of all fragments."""
    steps = {"train_step": 3, "trajectory": 20, "inner_step": 3, "sync_step": None, "apply_step": None}
    if variant.diloco:
        steps["diloco_step"] = 2 * variant.diloco.period + 1
    return {name: {"donate": True, **({"steps": count} if count else {})} for name, count in steps.items()}


@functools.cache
def _batch(shape: tuple[int, int], seed: int) -> dict[str, np.ndarray]:
    """Returns a packed batch with random loss weights, independent of the segments, and a random loss scale."""
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.5, 8.0)
    weights = rng.integers(0, 4, shape).astype(np.int32)
    return {**packed_batch(*shape, seed), "weights": weights, "loss_scale": np.asarray(scale, np.float32)}


@functools.cache
def replica_batches(shape: tuple[int, int], replicas: int, seed: int) -> dict[str, np.ndarray]:
    """Returns different packed batches for all replicas, ``[R, B, T]``; no two seeds share one."""
    batches = [packed_batch(*shape, seed * replicas + replica) for replica in range(replicas)]
    return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


def input_specs(config: ModelConfig, batch: Mapping[str, Any], mesh: Any) -> dict[str, Any]:
    """Returns the spec of each array of a batch, whose axes are rows and length, after replicas if there are any."""

    def axes(name: str, array: Any) -> tuple[str | None, ...]:
        if name.startswith("forced/"):  # choices of experts have a third dimension
            return (*BATCH_AXES, None)
        return (REPLICA, *BATCH_AXES)[3 - array.ndim :]

    return {
        name: resolve(axes(name, array), array.shape, config.rules, mesh, name)
        if array.ndim
        else jax.sharding.PartitionSpec()
        for name, array in batch.items()
    }


def _explain(config: ModelConfig, leaf: Leaf, mesh: Any) -> str:
    if leaf.logical_axes is None or mesh is None:
        return ""
    bindings = explain(leaf.logical_axes, leaf.shape, config.rules, mesh)
    return ", ".join(f"{binding.name}: {binding.reason}" for binding in bindings if binding.name)
