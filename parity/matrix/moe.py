"""Mixtures of experts: like Mixtral and like DeepSeek-V3, dropless and dropping, on meshes with an expert axis."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from models_nnx.shared.config import Dispatch, ModelConfig, MoeConfig, Scoring, override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.meshes import Mode
from parity.cases.case import Case, Pair
from parity.matrix.cases import OTHER_DOTS, OTHER_PLACES, same_flavour, twins
from parity.matrix.decoders import Variant
from parity.matrix.programs import PROGRAMS

HOME = "data2.expert4-auto"
SMALL_BATCH = "expert2.tensor2.fsdp2-auto"  # half of eight rows still fills it
MESHES = ("data2.expert4", "expert2.tensor2.fsdp2", "data2.context2.expert2.fsdp1")

BASE = tiny(preset("llama2-70b"))
MIXTRAL = dataclasses.replace(BASE, layers=3, moe=MoeConfig(experts=8, top_k=2, hidden=32, load_balance=0.02))
DEEPSEEK = dataclasses.replace(
    BASE,
    layers=3,
    dense_layers=1,
    moe=MoeConfig(
        experts=8,
        top_k=3,
        hidden=32,
        scoring=Scoring.SIGMOID,
        groups=4,
        top_groups=2,
        scale=2.5,
        shared_hidden=64,
        load_balance=0.01,
        bias_rate=0.001,
    ),
)
FAMILIES = {"mixtral": MIXTRAL, "deepseek": DEEPSEEK}
LAYOUTS = {"scan": "scanned", "unroll": "unrolled"}
ROWS = (
    *(
        (f"{family}-{dispatch}-{layout}", program, HOME)
        for family in FAMILIES
        for dispatch in Dispatch
        for layout in LAYOUTS
        for program in PROGRAMS
    ),
    *(
        (name, "train_step", f"{mesh}-{mode}")
        for name in ("mixtral-dropless-scan", "deepseek-dropping-scan")
        for mesh in MESHES
        for mode in Mode
        if f"{mesh}-{mode}" != HOME
    ),
    ("deepseek-accumulate", "train_step", SMALL_BATCH),
    *((name, "train_step", HOME) for name in ("deepseek-remat", "mixtral-remat", "gpt-oss", "mixtral-bf16")),
)
NAMED = {"remat.policy": "save_named", "remat.names": "query,mlp_hidden"}
CHANGED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "deepseek-accumulate": ("deepseek-dropping-scan", {"train.accumulation": "2"}),
    "deepseek-remat": ("deepseek-dropping-scan", {**NAMED, "dropout": "0.1"}),
    "mixtral-remat": ("mixtral-dropless-scan", {"remat.policy": "full", "scan_axis": "0"}),
    "gpt-oss": ("mixtral-dropless-scan", {"moe.activation": "clamped_swiglu", "moe.biases": "trained"}),
    "mixtral-bf16": ("mixtral-dropless-scan", {"compute_dtype": "bfloat16"}),
}
"""New name -> the base variant, and its changed settings."""


def _on_one_device(flavour: Flavour, variant: Variant, program: str, mesh: str, **more: Any) -> Case:
    """Returns the case of one device against experts distributed over a mesh."""
    name = f"{variant.name}-{'tied' if more else 'single'}-against-mesh"
    sides = (variant, "single"), (variant, mesh)
    return same_flavour(flavour, name, program, *sides, accept=OTHER_PLACES, **more)


def nearly_alike(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a state whose router kernels ``[..., E]`` of experts 0, 1, 2 differ by one ulp, and those of 3, 4, 5.

    Two experts are chosen, so a token that prefers one of these groups has to leave out one of three near-ties.
    """
    arranged = dict(state)
    for path, kernel in state.items():
        if path.endswith("router/kernel"):
            close, up = kernel.copy(), np.asarray(np.inf, kernel.dtype)
            for first in (0, 3):
                close[..., first + 1] = np.nextafter(kernel[..., first], up)
                close[..., first + 2] = np.nextafter(kernel[..., first], -up)
            arranged[path] = close
    return arranged


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of the experts."""
    named = {
        f"{family}-{dispatch}-{layout}": Variant(
            f"moe-{family}-{dispatch}-{layout}", override(config, settings)
        ).override({"moe.dispatch": dispatch, "layout": held})
        for family, config in FAMILIES.items()
        for dispatch in Dispatch
        for layout, held in LAYOUTS.items()
    }
    for name, (base, changes) in CHANGED.items():
        named[name] = dataclasses.replace(named[base].override(changes), name=f"moe-{name}")
    matrix = [twins(named[name], program, mesh) for name, program, mesh in ROWS]
    dropless, dropping = (named[name].config for name in ("mixtral-dropless-scan", "deepseek-dropping-scan"))
    return matrix + _measured(dropless, dropping)


def _measured(dropless: ModelConfig, dropping: ModelConfig) -> list[Case]:
    """Returns the cases that no proof decides: other meshes, other dispatch, ties."""
    few = Variant("moe-dropless", dataclasses.replace(dropless, layers=2))
    changes = {"moe.dispatch": "dropping", "moe.capacity_factor": "8.0"}
    ample = dataclasses.replace(few.override(changes), name="moe-ample")
    sides = (few, "single"), (ample, "single")
    spread = "expert2.tensor2.fsdp2"
    return [
        _on_one_device(Flavour.LINEN, few, "grad", f"{spread}-explicit"),
        _on_one_device(Flavour.NNX, Variant("moe-dropping", dropping), "grad", HOME),
        same_flavour(Flavour.NNX, "moe-dropless-against-ample", "grad", *sides, accept=OTHER_DOTS),
        _on_one_device(Flavour.NNX, few, "forward", f"{spread}-auto", prepare_state=nearly_alike),
    ]


PAIR = Pair(
    name="moe", about="mixtures of experts: dropless, dropping, balanced, expert-parallel", cases=cases
)
