"""The batch-split schedule: expert layers that process the batch in halves; twins, and against the plain schedule."""

import dataclasses
from collections.abc import Mapping, Sequence

from models_nnx.shared.config import override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.cases.case import Case, Pair
from parity.matrix.cases import OTHER_DOTS, TRAINING, same_flavour, twins
from parity.matrix.decoders import Variant, variants
from parity.matrix.programs import PROGRAMS

HOME = "data4.expert2-auto"
ONE, REAL = "fsdp2.tensor2.context1", "fsdp2.expert2.context2"
SHAPE = (16, 40)
SPLIT = {"layer_schedule": "batch_split"}
BASE = dataclasses.replace(tiny(preset("deepseek3-671b")), dense_layers=1, layers=3)
GPT_OSS = dataclasses.replace(tiny(preset("gpt-oss-20b")), layers=4)
UNROLLED = {**SPLIT, "layout": "unrolled", "moe.dispatch": "dropping"}
REMAT = {"remat.policy": "full", "moe.dispatch": "dropping", "train.accumulation": "2"}
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "scan": SPLIT,
    "remat": {**SPLIT, **REMAT},
    "unroll": {**UNROLLED, "mtp.depth": "2", "mtp.loss_scale": "0.3"},
    "short": {**UNROLLED, "layers": "2", "mtp": "none"},
}
ROWS = (
    *(("scan", program, HOME) for program in PROGRAMS),
    ("scan", "train_step", f"{ONE}-explicit"),
    ("scan", "train_step", f"{REAL}-explicit"),
    ("remat", "train_step", f"{REAL}-auto"),
    ("unroll", "train_step", f"{ONE}-explicit"),
    ("cycle", "train_step", f"{REAL}-explicit"),
)


def _against_plain(flavour: Flavour, split: Variant, mesh: str) -> Case:
    plain = dataclasses.replace(split.override({"layer_schedule": "plain"}), name=f"{split.name}-plain")
    sides = (plain, mesh), (split, mesh)
    name = "batch-split-plain-against-split"
    return same_flavour(flavour, name, "grad", *sides, accept=OTHER_DOTS)


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of the schedule."""
    named = variants("batch-split", override(BASE, settings), VARIANTS, SHAPE)
    named |= variants("batch-split", override(GPT_OSS, settings), {"cycle": SPLIT}, SHAPE)
    matrix = [twins(named[name], program, mesh) for name, program, mesh in ROWS]
    matrix.append(_against_plain(Flavour.LINEN, named["scan"], f"{REAL}-auto"))
    matrix.append(_against_plain(Flavour.NNX, named["short"], f"{ONE}-explicit"))
    matrix.append(_against_plain(Flavour.LINEN, named["short"], "single"))
    return matrix


def full_size(settings: Mapping[str, str], devices: int) -> list[Case]:
    """Returns cases of DeepSeek-V3 in a training setup, with its predictor, on ``fsdp x expert``; see `Pair`."""
    expert = 8 if devices >= 64 else min(2, devices)
    base = dataclasses.replace(preset("deepseek3-671b"), **TRAINING)
    config = override(base, {**SPLIT, **settings})
    variant = Variant("deepseek3-671b-batch-split", config, shape=(2 * devices, 4_096))
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
