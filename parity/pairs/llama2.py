"""The dense decoder: Llama 2, multi-head and grouped-query, in every layout the twins have."""

import dataclasses
import functools
from collections.abc import Mapping

from models_nnx.config import (
    AttentionKernel,
    Head,
    LayerLayout,
    ModelConfig,
    RematConfig,
    RematPolicy,
    TrainConfig,
    override,
)
from models_nnx.presets import preset, tiny
from parity.build import Flavour
from parity.matrix import Case, Pair
from parity.meshes import MeshSpec
from parity.pairs.decoders import decoder_build, float64
from parity.pairs.decoding import DECODING
from parity.pairs.layers import OTHER_LAYOUT
from parity.pairs.published import full_size
from parity.pairs.vary import ablations, vary
from parity.verdicts import Verdict

__all__ = ["PAIR"]

PROGRAMS = ("forward", "grad", "train_step")
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

PLAIN = TrainConfig()
ACCUMULATING = TrainConfig(accumulation=2)


def _case(variant: str, program: str, mesh: str, config: ModelConfig, train: TrainConfig = PLAIN) -> Case:
    build = functools.partial(decoder_build, name=f"llama2-{variant}", config=config, train=train)
    narrow = "bfloat16" in (config.param_dtype, config.compute_dtype)
    return Case(
        id=f"llama2-{variant}/{program}@{mesh}",
        reference=functools.partial(build, Flavour.LINEN),
        candidate=functools.partial(build, Flavour.NNX),
        program=program,
        mesh=MeshSpec.parse(mesh),
        lowest=Verdict.ARBITRATED if narrow else Verdict.BITWISE,
        exact=_exact(variant, config, train),
        vary=vary(lambda words, *configs: _case(variant + words, program, mesh, *configs), config, train),
        ablations=ablations(config, train),
        smoke=variant == "scan" and mesh == HOME,
    )


def _exact(variant: str, config: ModelConfig, train: TrainConfig):
    return functools.partial(
        decoder_build, Flavour.LINEN, name=f"llama2-{variant} float64", config=float64(config), train=train
    )


def _layout_case(flavour: Flavour, program: str, config: ModelConfig) -> Case:
    unrolled = dataclasses.replace(config, layout=LayerLayout.UNROLLED)
    return Case(
        id=f"llama2-scan-against-unroll-{flavour}/{program}@single",
        reference=functools.partial(decoder_build, flavour, "llama2-scan", config, PLAIN),
        candidate=functools.partial(decoder_build, flavour, "llama2-unroll", unrolled, PLAIN),
        program=program,
        not_applicable=OTHER_LAYOUT,
        exact=_exact("scan", config, PLAIN),
    )


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of the dense decoder.

    Args:
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    base = override(GROUPED, settings)
    matrix = [
        _case(variant, program, HOME, dataclasses.replace(base, **changes))
        for variant, changes in VARIANTS.items()
        for program in PROGRAMS
    ]
    multi_head = override(MULTI_HEAD, settings)
    matrix += [_case("mha", program, HOME, multi_head) for program in PROGRAMS]
    matrix += [_case("scan", "train_step", mesh, base) for mesh in MESHES]
    matrix += [
        _case(
            f"{variant}-accumulate",
            "train_step",
            HOME,
            dataclasses.replace(base, **VARIANTS[variant]),
            ACCUMULATING,
        )
        for variant in ("scan", "unroll-dropout")
    ]
    matrix += [
        _case(variant, program, HOME, dataclasses.replace(base, **VARIANTS[variant]))
        for variant in ("scan", "unroll")
        for program in DECODING
    ]
    matrix += [_layout_case(flavour, program, base) for flavour in Flavour for program in PROGRAMS]
    return matrix


PAIR = Pair(
    name="llama2",
    about="dense decoder: RMS norm, rotary, grouped-query attention, SwiGLU",
    cases=cases,
    full_size=functools.partial(full_size, ("llama2-7b", "llama2-70b")),
)
