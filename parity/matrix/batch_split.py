"""The batch-split schedule: layers with experts that take the batch in halves, against each other and the plain one."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from models_nnx.shared.config import (
    Dispatch,
    LayerLayout,
    LayerSchedule,
    MtpConfig,
    RematConfig,
    RematPolicy,
    TrainConfig,
    override,
)
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.cases.case import Case, Pair
from parity.matrix.cases import OTHER_DOTS, PLAIN, PROGRAMS, Variant, same_flavour, twins
from parity.matrix.published import TRAINING

__all__ = ["PAIR"]

HOME = "data4.expert2-auto"
ONE, REAL = "fsdp2.tensor2.context1", "fsdp2.expert2.context2"
SHAPE = (16, 40)
SPLIT = LayerSchedule.BATCH_SPLIT
FULL = RematConfig(policy=RematPolicy.FULL)

BASE = dataclasses.replace(tiny(preset("deepseek3-671b")), dense_layers=1, layers=3)
ACCUMULATING = TrainConfig(accumulation=2)


def _against_plain(flavour: Flavour, split: Variant, mesh: str) -> Case:
    """The same model with the plain schedule, on the same mesh."""
    config = dataclasses.replace(split.config, layer_schedule=LayerSchedule.PLAIN)
    plain = dataclasses.replace(split, name=f"{split.name}-plain", config=config)
    sides = (plain, mesh), (split, mesh)
    name = "batch-split-plain-against-split"
    return same_flavour(flavour, name, "grad", *sides, not_applicable=OTHER_DOTS)


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of the schedule.

    Args:
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    base = dataclasses.replace(override(BASE, settings), layer_schedule=SPLIT)
    gpt_oss = override(dataclasses.replace(tiny(preset("gpt-oss-20b")), layers=4), settings)
    dropping = dataclasses.replace(base.mixture, dispatch=Dispatch.DROPPING)
    unrolled = {"layout": LayerLayout.UNROLLED, "mtp": MtpConfig(depth=2), "moe": dropping}
    variants: dict[str, tuple[Any, TrainConfig]] = {
        "scan": (base, PLAIN),
        "remat": (dataclasses.replace(base, remat=FULL, moe=dropping), ACCUMULATING),
        "unroll": (dataclasses.replace(base, **unrolled), PLAIN),
        "short": (dataclasses.replace(base, **{**unrolled, "layers": 2, "mtp": None}), PLAIN),
        "cycle": (dataclasses.replace(gpt_oss, layer_schedule=SPLIT), PLAIN),
    }
    named = {
        name: Variant(f"batch-split-{name}", config, train, SHAPE)
        for name, (config, train) in variants.items()
    }
    matrix = [twins(named["scan"], program, HOME, smoke=program == "grad") for program in PROGRAMS]
    matrix += [
        twins(named[name], "train_step", mesh)
        for name, mesh in (
            ("scan", f"{ONE}-explicit"),
            ("scan", f"{REAL}-explicit"),
            ("remat", "fsdp2.expert2.context2-auto"),
            ("unroll", f"{ONE}-explicit"),
            ("cycle", f"{REAL}-explicit"),
        )
    ]
    matrix.append(_against_plain(Flavour.LINEN, named["scan"], f"{REAL}-auto"))
    matrix.append(_against_plain(Flavour.NNX, named["short"], f"{ONE}-explicit"))
    return matrix


def full_size(settings: Mapping[str, str], devices: int) -> list[Case]:
    """Returns DeepSeek-V3 as it is trained, with its predictor, in halves of the batch.

    Args:
        settings: config fields to override.
        devices: how many; they form ``fsdp x expert``.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    expert = 8 if devices >= 64 else min(2, devices)
    base = dataclasses.replace(preset("deepseek3-671b"), **TRAINING, layer_schedule=SPLIT)
    variant = Variant("deepseek3-671b-batch-split", override(base, settings), shape=(2 * devices, 4_096))
    mesh = f"fsdp{devices // expert}.expert{expert}"
    programs: Sequence[tuple[str, str]] = (
        ("grad", "auto"),
        ("train_step", "auto"),
        ("train_step", "explicit"),
    )
    return [twins(variant, program, f"{mesh}-{mode}") for program, mode in programs]


PAIR = Pair(
    name="batch-split",
    about="layers with experts that take the batch in halves",
    cases=cases,
    full_size=full_size,
)
