"""Multi-token prediction: one and two depths, behind every kind of stack, head, loss and mesh."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from models_nnx.shared.config import (
    Dispatch,
    Head,
    LayerLayout,
    ModelConfig,
    MomentSharding,
    MtpConfig,
    RematConfig,
    RematPolicy,
    TrainConfig,
    override,
)
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.cases.case import Case, Pair
from parity.matrix.cases import OTHER_CODE, PLAIN, PROGRAMS, Variant, layouts, same_flavour, twins
from parity.matrix.layers import layer_rules
from parity.matrix.moe import DEEPSEEK
from parity.matrix.pipeline import SHAPE, STORAGE, pipelined
from parity.matrix.saving import saved_twins

__all__ = ["PAIR"]

HOME = "fsdp4.tensor2-auto"
ONE, TWO = MtpConfig(depth=1, loss_scale=0.7), MtpConfig(depth=2, loss_scale=0.3)
FULL = RematConfig(policy=RematPolicy.FULL)
NAMED = RematConfig(policy=RematPolicy.SAVE_NAMED, names=("query", "mlp_hidden"))

DENSE = dataclasses.replace(tiny(preset("llama2-70b")), layers=2, mtp=TWO)
EXPERTS = dataclasses.replace(DEEPSEEK, mtp=ONE)
LOCAL = dataclasses.replace(tiny(preset("gemma2-9b")), mtp=ONE)
ACCUMULATING = TrainConfig(accumulation=2)
TILED = TrainConfig(vocab_tiles=4, moments=MomentSharding.ZERO1)


def _dropping(config: ModelConfig, **changes: Any) -> ModelConfig:
    return dataclasses.replace(
        config, moe=dataclasses.replace(config.mixture, dispatch=Dispatch.DROPPING), **changes
    )


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of multi-token prediction.

    Args:
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    dense, experts, local = (override(config, settings) for config in (DENSE, EXPERTS, LOCAL))
    unrolled = {"layout": LayerLayout.UNROLLED}
    staged = pipelined(dense, STORAGE, remat=FULL, dropout=0.1)
    variants = {
        "scan": (dense, PLAIN),
        "unroll": (
            dataclasses.replace(dense, mtp=ONE, head=Head.TIED, dropout=0.1, **unrolled),
            ACCUMULATING,
        ),
        "tiled": (dataclasses.replace(dense, head=Head.TIED, remat=FULL), TILED),
        "bf16": (dataclasses.replace(local, compute_dtype="bfloat16", remat=NAMED), PLAIN),
        "experts": (dataclasses.replace(experts, remat=FULL), PLAIN),
        "experts-unroll": (_dropping(experts, mtp=TWO, **unrolled), ACCUMULATING),
        "pipeline": (staged, PLAIN),
        "pipeline-experts": (pipelined(_dropping(experts), STORAGE), PLAIN),
    }
    named = {
        name: Variant(f"mtp-{name}", config, train, SHAPE if config.pipeline else (8, 40))
        for name, (config, train) in variants.items()
    }
    matrix = [twins(named["scan"], program, HOME, smoke=program == "grad") for program in PROGRAMS]
    matrix += [
        twins(named[name], program, mesh)
        for name, program, mesh in (
            ("scan", "train_step", "fsdp2.tensor2.context2-explicit"),
            ("tiled", "train_step", "data2.fsdp2.tensor2-auto"),
            ("tiled", "grad", "fsdp2.tensor2.context2-explicit"),
            ("bf16", "train_step", HOME),
            ("experts", "forward", "data2.expert4-auto"),
            ("experts", "train_step", "data2.expert4-auto"),
            ("experts-unroll", "train_step", "expert2.tensor2.fsdp2-explicit"),
            ("pipeline", "train_step", "stage2.fsdp2.tensor2-auto"),
            ("pipeline-experts", "train_step", "stage2.fsdp2.context2-explicit"),
        )
    ]
    matrix.append(saved_twins(named["unroll"], "train_step", "fsdp2.tensor2.context1-explicit"))
    sides = (named["scan"], HOME), (named["scan"], "fsdp2.tensor2.context2-explicit")
    words = "mtp-auto-against-explicit"
    matrix.append(same_flavour(Flavour.LINEN, words, "grad", *sides, not_applicable=OTHER_CODE))
    return [*matrix, layouts(Flavour.NNX, "mtp-experts", "grad", experts, rules=layer_rules(experts))]


PAIR = Pair(
    name="mtp", about="multi-token prediction: predictors of further tokens behind every stack", cases=cases
)
