"""The dense decoder: Llama 2, multi-head and grouped-query, in every layout the twins have."""

import dataclasses
import functools
from collections.abc import Mapping

from models_nnx.shared.config import (
    AttentionKernel,
    Head,
    LayerLayout,
    ModelConfig,
    RematConfig,
    RematPolicy,
    TrainConfig,
    override,
)
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.cases.case import Case, Pair
from parity.matrix.cases import PLAIN, PROGRAMS, Variant, layouts, twins
from parity.matrix.decoding import DECODING
from parity.matrix.published import full_size

__all__ = ["PAIR"]

HOME = "fsdp4.tensor2-auto"
MESHES = ("single", "data8-auto", "fsdp8-auto", "data2.fsdp2.tensor2-auto", "fsdp4.tensor2-explicit")

GROUPED = tiny(preset("llama2-70b"))
MULTI_HEAD = tiny(preset("llama2-7b"))
NAMED = RematConfig(policy=RematPolicy.SAVE_NAMED, names=("query", "attention_out"))


def _remat(policy: RematPolicy) -> RematConfig:
    return RematConfig(policy=policy)


VARIANTS: dict[str, dict] = {
    "scan": {},
    "unroll": {"layout": LayerLayout.UNROLLED},
    "scan-remat-full": {"remat": _remat(RematPolicy.FULL)},
    "scan-remat-minimal": {"remat": _remat(RematPolicy.MINIMAL), "head": Head.TIED},
    "scan-remat-named": {"remat": NAMED, "dropout": 0.1},
    "unroll-remat-full": {"remat": _remat(RematPolicy.FULL), "layout": LayerLayout.UNROLLED, "dropout": 0.1},
    "scan-tied": {"head": Head.TIED, "scan_axis": 0},
    "unroll-tied": {"head": Head.TIED, "layout": LayerLayout.UNROLLED},
    "scan-dropout": {"dropout": 0.1},
    "unroll-dropout": {"dropout": 0.1, "layout": LayerLayout.UNROLLED},
    "scan-bf16": {"compute_dtype": "bfloat16", "remat": _remat(RematPolicy.FULL)},
    "unroll-bf16": {"param_dtype": "bfloat16", "compute_dtype": "bfloat16", "layout": LayerLayout.UNROLLED},
    "scan-library": {
        "attention": dataclasses.replace(GROUPED.attention, kernel=AttentionKernel.LIBRARY),
    },
}

ACCUMULATING = TrainConfig(accumulation=2)


def _twins(name: str, program: str, mesh: str, config: ModelConfig, train: TrainConfig = PLAIN) -> Case:
    smoke = name == "scan" and mesh == HOME
    return twins(Variant(f"llama2-{name}", config, train), program, mesh, smoke=smoke)


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of the dense decoder.

    Args:
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    base = override(GROUPED, settings)
    configs = {name: dataclasses.replace(base, **changes) for name, changes in VARIANTS.items()}
    matrix = [_twins(name, program, HOME, config) for name, config in configs.items() for program in PROGRAMS]
    multi_head = override(MULTI_HEAD, settings)
    matrix += [_twins("mha", program, HOME, multi_head) for program in PROGRAMS]
    matrix += [_twins("scan", "train_step", mesh, base) for mesh in MESHES]
    matrix += [
        _twins(f"{name}-accumulate", "train_step", HOME, configs[name], ACCUMULATING)
        for name in ("scan", "unroll-dropout")
    ]
    matrix += [
        _twins(name, program, HOME, configs[name]) for name in ("scan", "unroll") for program in DECODING
    ]
    matrix += [layouts(flavour, "llama2", program, base) for flavour in Flavour for program in PROGRAMS]
    return matrix


PAIR = Pair(
    name="llama2",
    about="dense decoder: RMS norm, rotary, grouped-query attention, SwiGLU",
    cases=cases,
    full_size=functools.partial(full_size, ("llama2-7b", "llama2-70b")),
)
