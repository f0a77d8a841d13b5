"""Decoder families: local and global cycles, soft caps, norms of many kinds, latent attention, experts, sinks."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from models_nnx.shared.config import LayerLayout, RematConfig, RematPolicy, override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.cases.case import Case, Pair
from parity.matrix.cases import PROGRAMS, Variant, layouts, twins
from parity.matrix.decoding import DECODING
from parity.matrix.layers import layer_rules
from parity.matrix.published import full_size

__all__ = ["DEEPSEEK3", "FAMILIES", "GEMMA2", "GEMMA3", "GPT_OSS", "MIXTRAL", "QWEN3"]

EVERY = (*PROGRAMS, *DECODING)
HOME = "fsdp4.tensor2-auto"
EXPLICIT = "fsdp2.fsdp_transpose2.tensor2.data1-explicit"

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
ON_EXPLICIT = (("scan", "train_step"), ("scan", "generate"), ("unroll", "train_step"))
SHOWN = {"unroll-bf16": ("forward",), "scan-bf16": ("grad",), "scan-dropout": ("train_step",)}


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
    variants = {name: Variant(f"{family}-{name}", config) for name, config in configs.items()}
    matrix = [
        twins(variant, program, HOME, smoke=(name, program) == ("scan", "grad"))
        for name, variant in variants.items()
        for program in SHOWN.get(name, EVERY)
    ]
    matrix += [twins(variants[name], program, EXPLICIT) for name, program in ON_EXPLICIT]
    if len(base.stacks) > 1 or len(base.attention.cycle) > 1:
        flavour = list(Flavour)[len(family) % 2]
        matrix.append(layouts(flavour, family, "grad", base, rules=layer_rules(base)))
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
FAMILIES = (GEMMA2, GEMMA3, QWEN3, MIXTRAL, DEEPSEEK3, GPT_OSS)
"""All families, in the order of reports."""
