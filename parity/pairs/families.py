"""Decoder families: local and global cycles, soft caps, norms of many kinds, latent attention, experts, sinks."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from models_nnx.config import LayerLayout, ModelConfig, RematConfig, RematPolicy, TrainConfig, override
from models_nnx.presets import preset, tiny
from parity.build import Flavour
from parity.matrix import Case, Pair
from parity.meshes import MeshSpec
from parity.pairs.decoders import decoder_build, float64
from parity.pairs.layers import OTHER_LAYOUT, layer_rules
from parity.pairs.published import full_size
from parity.pairs.vary import ablations, vary
from parity.verdicts import Verdict

__all__ = ["DEEPSEEK3", "GEMMA2", "GEMMA3", "GPT_OSS", "MIXTRAL", "QWEN3"]

PROGRAMS = ("forward", "grad", "train_step", "prefill", "generate")
HOME = "fsdp4.tensor2-auto"
EXPLICIT = "fsdp2.fsdp_transpose2.tensor2.data1-explicit"
PLAIN = TrainConfig()

FULL = RematConfig(policy=RematPolicy.FULL)
VARIANTS: dict[str, dict[str, Any]] = {
    "scan": {},
    "unroll": {"layout": LayerLayout.UNROLLED},
    "scan-bf16": {"compute_dtype": "bfloat16", "remat": FULL},
    "unroll-bf16": {
        "param_dtype": "bfloat16",
        "compute_dtype": "bfloat16",
        "layout": LayerLayout.UNROLLED,
    },
    "scan-dropout": {"dropout": 0.1, "remat": FULL},
}
SHOWN = {"unroll-bf16": ("forward",), "scan-bf16": ("grad",), "scan-dropout": ("train_step",)}


def _case(name: str, program: str, mesh: str, config: ModelConfig, *, smoke: bool = False) -> Case:
    build = functools.partial(decoder_build, name=name, config=config, train=PLAIN)
    narrow = "bfloat16" in (config.param_dtype, config.compute_dtype)
    return Case(
        id=f"{name}/{program}@{mesh}",
        reference=functools.partial(build, Flavour.LINEN),
        candidate=functools.partial(build, Flavour.NNX),
        program=program,
        mesh=MeshSpec.parse(mesh),
        lowest=Verdict.ARBITRATED if narrow else Verdict.BITWISE,
        exact=_exact(name, config),
        vary=vary(lambda words, config, _: _case(name + words, program, mesh, config), config, PLAIN),
        ablations=ablations(config, PLAIN),
        smoke=smoke,
    )


def _exact(name: str, config: ModelConfig):
    return functools.partial(
        decoder_build, Flavour.LINEN, name=f"{name} float64", config=float64(config), train=PLAIN
    )


def _layout_case(name: str, flavour: Flavour, program: str, config: ModelConfig) -> Case:
    unrolled = dataclasses.replace(config, layout=LayerLayout.UNROLLED)
    return Case(
        id=f"{name}-scan-against-unroll-{flavour}/{program}@single",
        reference=functools.partial(decoder_build, flavour, f"{name}-scan", config, PLAIN),
        candidate=functools.partial(decoder_build, flavour, f"{name}-unroll", unrolled, PLAIN),
        program=program,
        rules=layer_rules(config),
        not_applicable=OTHER_LAYOUT,
        exact=_exact(f"{name}-scan", config),
    )


def cases(family: str, name: str, settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of one family.

    Args:
        family: first word of the ids.
        name: of the preset whose tiny version is compared.
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    base = override(tiny(preset(name)), settings)
    configs = {variant: dataclasses.replace(base, **changes) for variant, changes in VARIANTS.items()}
    if len(base.attention.cycle) > 2:
        configs["scan-rest"] = dataclasses.replace(base, layers=base.layers + 2)
    matrix = [
        _case(f"{family}-{variant}", program, HOME, config, smoke=(variant, program) == ("scan", "grad"))
        for variant, config in configs.items()
        for program in SHOWN.get(variant, PROGRAMS)
    ]
    matrix += [
        _case(f"{family}-{variant}", "train_step", EXPLICIT, configs[variant])
        for variant in ("scan", "unroll")
    ]
    if len(base.stacks) > 1 or len(base.attention.cycle) > 1:
        flavour = list(Flavour)[len(family) % 2]
        matrix.append(_layout_case(family, flavour, "grad", base))
    return matrix


def _pair(family: str, name: str, about: str) -> Pair:
    return Pair(
        name=family,
        about=about,
        cases=functools.partial(cases, family, name),
        full_size=functools.partial(full_size, (name,)),
    )


GEMMA2 = _pair(
    "gemma2", "gemma2-9b", "local and global layers in turn, pre and post norms, soft caps, tied head"
)
GEMMA3 = _pair("gemma3", "gemma3-12b", "five local layers to one global, each with its rotary base, QK norm")
QWEN3 = _pair("qwen3", "qwen3-8b", "QK norm")
MIXTRAL = _pair("mixtral", "mixtral-8x7b", "experts in every layer")
DEEPSEEK3 = _pair("deepseek3", "deepseek3-671b", "latent attention; dense layers, then experts: two stacks")
GPT_OSS = _pair("gpt-oss", "gpt-oss-20b", "attention sinks, local and global layers in turn, biases, experts")
