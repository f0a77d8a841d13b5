"""Decoder families: local and global cycles, soft caps, norms of many kinds, latent attention, experts, sinks."""

import dataclasses
import functools
from collections.abc import Mapping

from models_nnx.shared.config import override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.cases.case import Case, Pair
from parity.matrix.cases import full_size, layouts, twins
from parity.matrix.decoders import Variant, variants
from parity.matrix.layers import layer_rules
from parity.matrix.programs import DECODING, PROGRAMS

HOME = "fsdp4.tensor2-auto"
EXPLICIT = "fsdp2.fsdp_transpose2.tensor2.data1-explicit"
EVERY = (*PROGRAMS, *DECODING)

VARIANTS: Mapping[str, Mapping[str, str]] = {
    "scan": {},
    "unroll": {"layout": "unrolled"},
    "scan-bf16": {"compute_dtype": "bfloat16", "remat.policy": "full"},
    "unroll-bf16": {"param_dtype": "bfloat16", "compute_dtype": "bfloat16", "layout": "unrolled"},
    "scan-dropout": {"dropout": "0.1", "remat.policy": "full"},
}
SHOWN = {"unroll-bf16": ("forward",), "scan-bf16": ("grad",), "scan-dropout": ("train_step",)}
ON_EXPLICIT = (("scan", "train_step"), ("scan", "generate"), ("unroll", "train_step"))


def cases(family: str, name: str, settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of one family, for the tiny version of its preset."""
    base = override(tiny(preset(name)), settings)
    named = variants(family, base, VARIANTS)
    if len(base.attention.cycle) > 2:
        named["scan-rest"] = Variant(f"{family}-scan-rest", dataclasses.replace(base, layers=base.layers + 2))
    rows = [(variant, program, HOME) for variant in named for program in SHOWN.get(variant, EVERY)]
    rows += [(variant, program, EXPLICIT) for variant, program in ON_EXPLICIT]
    matrix = [twins(named[variant], program, mesh) for variant, program, mesh in rows]
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
    "gemma2", "gemma2-9b", "local and global layers alternate, pre and post norms, soft caps, tied head"
)
GEMMA3 = _pair("gemma3", "gemma3-12b", "five local layers to one global, each with its rotary base, QK norm")
QWEN3 = _pair("qwen3", "qwen3-8b", "QK norm")
MIXTRAL = _pair("mixtral", "mixtral-8x7b", "experts in every layer")
DEEPSEEK3 = _pair("deepseek3", "deepseek3-671b", "latent attention; dense layers, then experts: two stacks")
GPT_OSS = _pair(
    "gpt-oss", "gpt-oss-20b", "attention sinks, local and global layers alternate, biases, experts"
)
FAMILIES = (GEMMA2, GEMMA3, QWEN3, MIXTRAL, DEEPSEEK3, GPT_OSS)
