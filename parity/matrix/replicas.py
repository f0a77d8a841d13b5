"""Builds of DiLoCo's twins: a state of replicas, and the programs that change it."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import models_linen.diloco
import models_nnx.diloco
from models_nnx.shared.config import DilocoConfig, ModelConfig, TrainConfig, override
from models_nnx.shared.data import packed_batch
from models_nnx.shared.sharding import resolve
from parity.builds.build import Build, Flavour, linen_build, nnx_build
from parity.matrix.cases import Variant
from parity.matrix.decoders import SMALL, SOURCES
from parity.matrix.vary import varied

__all__ = ["BATCH_AXES", "PLAIN", "PROGRAMS", "Replicated", "diloco_build", "replica_batches"]

PLAIN = DilocoConfig(replicas=2, period=2)
PROGRAMS = ("inner_step", "sync_step", "apply_step", "diloco_step")
BATCH_AXES = ("replica", "activation_batch", "activation_length")


@dataclasses.dataclass(frozen=True)
class Replicated(Variant):
    """A decoder under DiLoCo.

    Args:
        diloco: how replicas meet.
        shape: rows and length of one replica's batch.
    """

    diloco: DilocoConfig = PLAIN

    def build(self, flavour: Flavour) -> Build:
        """Returns the build, the same one for equal variants."""
        return diloco_build(flavour, self)

    def varied(self, settings: Mapping[str, str]) -> "Replicated":
        """Returns the variant with other settings, those of the replicas beginning with ``diloco.``.

        Raises:
            ConfigError: a setting breaks a rule.
        """
        prefix = "diloco."
        words = ",".join(f"{name}={text}" for name, text in settings.items())
        mine = {name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)}
        rest = {name: text for name, text in settings.items() if not name.startswith(prefix)}
        config, train = varied(self.config, self.train, rest)
        diloco = override(self.diloco, mine)
        return Replicated(f"{self.name} {words}", config, train, self.shape, diloco)


def replica_batches(shape: tuple[int, int], replicas: int, seed: int) -> dict[str, np.ndarray]:
    """Returns packed batches, another one for each replica, ``[R, B, T]``; no two seeds share one.

    Args:
        shape: rows and length of one replica's batch.
        replicas: how many.
        seed: of all of them.
    """
    batches = [packed_batch(*shape, seed * replicas + replica) for replica in range(replicas)]
    return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


def _input_specs(config: ModelConfig, batch: Mapping[str, Any], mesh: jax.sharding.Mesh) -> dict[str, Any]:
    return {name: resolve(BATCH_AXES, array.shape, config.rules, mesh, name) for name, array in batch.items()}


def _linen_programs(config: ModelConfig, train: TrainConfig, diloco: DilocoConfig) -> dict[str, Any]:
    models, last = models_linen.diloco, diloco.fragments - 1

    def inner_step(state, batch):
        state, metrics = models.inner_step(config, train, state, batch)
        return {"values": metrics, "state": state}

    def sync_step(state, batch):
        return {"state": models.sync_step(config, diloco, state, last)}

    def apply_step(state, batch):
        return {"state": models.apply_step(config, diloco, state, last)}

    def diloco_step(state, batch):
        state, metrics = models.diloco_step(config, train, diloco, state, batch)
        return {"values": metrics, "state": state}

    return dict(zip(PROGRAMS, (inner_step, sync_step, apply_step, diloco_step), strict=True))


def _nnx_programs(config: ModelConfig, train: TrainConfig, diloco: DilocoConfig) -> dict[str, Any]:
    models, last = models_nnx.diloco, diloco.fragments - 1

    def inner_step(state, batch):
        return {"values": models.inner_step(train, state, batch), "state": state}

    def sync_step(state, batch):
        models.sync_step(diloco, state, last)
        return {"state": state}

    def apply_step(state, batch):
        models.apply_step(diloco, state, last)
        return {"state": state}

    def diloco_step(state, batch):
        return {"values": models.diloco_step(train, diloco, state, batch), "state": state}

    return dict(zip(PROGRAMS, (inner_step, sync_step, apply_step, diloco_step), strict=True))


def _options(diloco: DilocoConfig) -> dict[str, dict[str, Any]]:
    """Steps on each replica past two meetings of everything."""
    once = {"donate": True}
    return {
        "inner_step": {"steps": 3, "donate": True},
        "sync_step": once,
        "apply_step": once,
        "diloco_step": {"steps": 2 * diloco.period + 1, "donate": True},
    }


@functools.cache
def diloco_build(flavour: Flavour, variant: Replicated) -> Build:
    """Returns the build of a decoder under DiLoCo, the same one for the same arguments.

    Args:
        flavour: which twin.
        variant: what to build.
    """
    config, train, diloco = variant.config, variant.train, variant.diloco
    one = {name: jax.ShapeDtypeStruct(variant.shape, array.dtype) for name, array in _tokens().items()}
    make, programs, create, specs = {
        Flavour.LINEN: (
            linen_build,
            _linen_programs,
            lambda key: models_linen.diloco.create(config, train, diloco, key, batch=one),
            models_linen.diloco.state_specs,
        ),
        Flavour.NNX: (
            nnx_build,
            _nnx_programs,
            lambda key: models_nnx.diloco.create(config, train, diloco, key),
            models_nnx.diloco.state_specs,
        ),
    }[flavour]
    options = _options(diloco)
    return make(
        f"{flavour} {variant.name}",
        create,
        {name: (program, options[name]) for name, program in programs(config, train, diloco).items()},
        inputs=functools.cache(functools.partial(replica_batches, variant.shape, diloco.replicas)),
        abstract_inputs={
            name: jax.ShapeDtypeStruct((diloco.replicas, *x.shape), x.dtype) for name, x in one.items()
        },
        specs=functools.partial(specs, config, train),
        input_specs=functools.partial(_input_specs, config),
        rules=config.rules,
        sources=SOURCES[flavour],
    )


def _tokens() -> dict[str, np.ndarray]:
    return packed_batch(*SMALL, 0)
