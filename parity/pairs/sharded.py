"""Sharding: the dense decoder on meshes of every kind, auto and explicit, with and without ZeRO-1."""

import dataclasses
import functools
from collections.abc import Mapping

from models_nnx.config import (
    LayerLayout,
    ModelConfig,
    MomentSharding,
    RematConfig,
    RematPolicy,
    TrainConfig,
    override,
)
from models_nnx.presets import preset, tiny
from parity.build import Flavour
from parity.matrix import Case, Pair
from parity.meshes import MeshSpec, Mode
from parity.pairs.decoders import decoder_build, float64
from parity.pairs.vary import ablations, vary
from parity.verdicts import Verdict

__all__ = ["PAIR"]

# One axis of size one each: a spec that keeps it on one side only breaks under an explicit mesh.
MESHES = (
    "data8.tensor1",
    "fsdp8.context1",
    "fsdp4.tensor2.fsdp_transpose1",
    "fsdp2.fsdp_transpose2.tensor2.data1",
    "data2.fsdp2.context2.expert1",
    "data4.expert2.fsdp1",
)
ZERO1_MESHES = ("data8.tensor1", "data2.fsdp2.context2.expert1", "data2.fsdp2.tensor2")

REMAT = RematConfig(policy=RematPolicy.FULL)
VARIANTS: dict[str, dict] = {
    "scan": {"dropout": 0.1, "remat": REMAT},
    "unroll": {"layout": LayerLayout.UNROLLED},
}
ZERO1 = TrainConfig(moments=MomentSharding.ZERO1)
PLAIN = TrainConfig()

ELSEWHERE = {
    "collectives": "another mesh moves other bytes",
    "loops": "another mesh compiles to other loops",
    "memory": "another mesh needs other memory",
}
ONE_DEVICE = {**ELSEWHERE, "sharding": "one side has no mesh"}


def _builds(name: str, config: ModelConfig, train: TrainConfig):
    return functools.partial(decoder_build, name=f"sharded-{name}", config=config, train=train)


def _twins(
    name: str, config: ModelConfig, train: TrainConfig, mesh: str, program: str = "train_step"
) -> Case:
    build = _builds(name, config, train)
    return Case(
        id=f"sharded-{name}/{program}@{mesh}",
        reference=functools.partial(build, Flavour.LINEN),
        candidate=functools.partial(build, Flavour.NNX),
        program=program,
        mesh=MeshSpec.parse(mesh),
        lowest=Verdict.BITWISE,
        vary=vary(
            lambda words, config, train: _twins(name + words, config, train, mesh, program), config, train
        ),
        ablations=ablations(config, train),
        smoke=mesh == "fsdp2.fsdp_transpose2.tensor2.data1-explicit" and name == "scan",
    )


def _elsewhere(flavour: Flavour, config: ModelConfig, mesh: str, *, reference: str) -> Case:
    """One build on two meshes: one device against many, or auto against explicit."""
    build = functools.partial(_builds("plain", config, PLAIN), flavour)
    exact = functools.partial(_builds("plain float64", float64(config), PLAIN), Flavour.LINEN)
    single = reference == "single"
    return Case(
        id=f"sharded-{'single' if single else 'auto'}-against-mesh-{flavour}/train_step@{mesh}",
        reference=build,
        candidate=build,
        program="train_step",
        mesh=MeshSpec.parse(reference),
        candidate_mesh=MeshSpec.parse(mesh),
        not_applicable=ONE_DEVICE if single else ELSEWHERE,
        exact=exact,
    )


def _zero1_case(flavour: Flavour, config: ModelConfig, mesh: str) -> Case:
    """ZeRO-1 against plain moments: the same numbers in a fraction of the memory."""
    plain, sharded = _builds("plain", config, PLAIN), _builds("plain-zero1", config, ZERO1)
    return Case(
        id=f"sharded-plain-against-zero1-{flavour}/train_step@{mesh}",
        reference=functools.partial(plain, flavour),
        candidate=functools.partial(sharded, flavour),
        program="train_step",
        mesh=MeshSpec.parse(mesh),
        not_applicable={
            **ELSEWHERE,
            "program": "ZeRO-1 reshards, so these are other programs by intent",
            "sharding": "the moments lie elsewhere by intent",
        },
        exact=functools.partial(_builds("plain float64", float64(config), PLAIN), Flavour.LINEN),
    )


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of meshes.

    Args:
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    base = override(tiny(preset("llama2-70b")), settings)
    variants = {name: dataclasses.replace(base, **changes) for name, changes in VARIANTS.items()}
    matrix = [
        _twins(name, config, PLAIN, f"{mesh}-{mode}")
        for name, config in variants.items()
        for mesh in MESHES
        for mode in Mode
    ]
    matrix += [
        _twins(f"{name}-zero1", config, ZERO1, f"{mesh}-{mode}")
        for name, config in variants.items()
        for mesh in ZERO1_MESHES
        for mode in Mode
    ]
    for mesh in MESHES:
        flavour = list(Flavour)[MESHES.index(mesh) % 2]
        matrix.append(_elsewhere(flavour, base, f"{mesh}-explicit", reference="single"))
        matrix.append(_elsewhere(flavour, base, f"{mesh}-explicit", reference=f"{mesh}-auto"))
    matrix += [
        _zero1_case(flavour, base, f"data2.fsdp2.tensor2-{mode}")
        for flavour, mode in zip(Flavour, Mode, strict=True)
    ]
    return matrix


PAIR = Pair(
    name="sharded", about="the dense decoder on meshes: auto, explicit, ZeRO-1, size-1 axes", cases=cases
)
