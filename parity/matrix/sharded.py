"""Sharding: the dense decoder on meshes of every kind, auto and explicit, with and without ZeRO-1."""

import dataclasses
from collections.abc import Mapping

from models_nnx.shared.config import override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.meshes import Mode
from parity.cases.case import Case, Pair
from parity.matrix.cases import EXACT_OR_RUN, OTHER_CODE, OTHER_PLACES, OTHER_PROGRAM, same_flavour, twins
from parity.matrix.decoders import ZERO1, Variant, variants
from parity.verdicts import Verdict

# Each has one axis of size one: a spec that drops it on one side fails on an explicit mesh.
MESHES = (
    "data8.tensor1",
    "fsdp8.context1",
    "fsdp2.fsdp_transpose2.tensor2.data1",
    "fsdp4.tensor2.fsdp_transpose1",
    "data2.fsdp2.context2.expert1",
    "data4.expert2.fsdp1",
)
ZERO1_MESHES = ("data8.tensor1", "data2.fsdp2.context2.expert1", "data2.fsdp2.tensor2")

VARIANTS: Mapping[str, Mapping[str, str]] = {
    "scan": {"dropout": "0.1", "remat.policy": "full"},
    "unroll": {"layout": "unrolled"},
}
ROWS = (
    *((name, mesh) for name in VARIANTS for mesh in MESHES),
    *((f"{name}-zero1", mesh) for name in VARIANTS for mesh in ZERO1_MESHES),
)


def _elsewhere(flavour: Flavour, plain: Variant, mesh: str) -> list[Case]:
    """Returns cases of one build on two meshes: one device against many, and auto against explicit; NNX's are run."""
    sides = (("single", "single", OTHER_PLACES), ("auto", f"{mesh}-auto", OTHER_CODE))
    there = (plain, f"{mesh}-explicit")
    require = EXACT_OR_RUN if flavour is Flavour.LINEN else Verdict.ARBITRATED
    return [
        same_flavour(
            flavour, f"sharded-{name}-against-mesh", "train_step", (plain, here), there, accept=accept
        ).with_accept(require=require)
        for name, here, accept in sides
    ]


def _zero1_case(flavour: Flavour, plain: Variant, mesh: str) -> Case:
    """Returns the case of plain moments against ZeRO-1, which needs less memory; NNX's is run on one mesh."""
    zero1 = dataclasses.replace(plain.override(ZERO1), name="sharded-plain-zero1")
    name = "sharded-plain-against-zero1"
    run = flavour is Flavour.NNX and mesh.startswith(ZERO1_MESHES[0])
    require = Verdict.ARBITRATED if run else EXACT_OR_RUN
    sides = (plain, mesh), (zero1, mesh)
    accept = dataclasses.replace(OTHER_PROGRAM, require=require, prove_exact=True)
    return same_flavour(flavour, name, "train_step", *sides, accept=accept)


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of meshes."""
    base = override(tiny(preset("llama2-70b")), settings)
    named = variants("sharded", base, VARIANTS)
    named |= variants("sharded", base, {f"{name}-zero1": {**own, **ZERO1} for name, own in VARIANTS.items()})
    matrix = [twins(named[name], "train_step", f"{mesh}-{mode}") for name, mesh in ROWS for mode in Mode]
    plain = Variant("sharded-plain", base)
    for index, mesh in enumerate(MESHES):
        matrix += _elsewhere(list(Flavour)[index % 2], plain, mesh)
    matrix += [
        _zero1_case(flavour, plain, f"data2.fsdp2.tensor2-{mode}")
        for flavour, mode in zip(Flavour, Mode, strict=True)
    ]
    return matrix


PAIR = Pair(
    name="sharded", about="the dense decoder on meshes: auto, explicit, ZeRO-1, size-1 axes", cases=cases
)
