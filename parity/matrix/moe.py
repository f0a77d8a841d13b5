"""Mixtures of experts: like Mixtral and like DeepSeek-V3, dropless and dropping, on meshes with an expert axis."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from models_nnx.shared.config import (
    Activation,
    Biases,
    Dispatch,
    LayerLayout,
    ModelConfig,
    MoeConfig,
    RematConfig,
    RematPolicy,
    Scoring,
    TrainConfig,
    override,
)
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.meshes import Mode
from parity.cases.case import Case, Pair
from parity.matrix.cases import OTHER_DOTS, OTHER_PLACES, PLAIN, PROGRAMS, Variant, same_flavour, twins

__all__ = ["PAIR"]

HOME = "data2.expert4-auto"
SMALL_BATCH = "expert2.tensor2.fsdp2-auto"  # half of eight rows still fill it
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
AMPLE = 8.0

ACCUMULATING = TrainConfig(accumulation=2)
REMAT = RematConfig(policy=RematPolicy.FULL)
NAMED = RematConfig(policy=RematPolicy.SAVE_NAMED, names=("query", "mlp_hidden"))
GPT_OSS = {"activation": Activation.CLAMPED_SWIGLU, "biases": Biases.TRAINED}


def _with(config: ModelConfig, **changes: Any) -> ModelConfig:
    """Returns a config whose experts have other settings."""
    return dataclasses.replace(config, moe=dataclasses.replace(config.mixture, **changes))


def _twins(
    name: str, config: ModelConfig, program: str, mesh: str = HOME, train: TrainConfig = PLAIN
) -> Case:
    smoke = program == "train_step" and mesh == HOME and name == "deepseek-dropping-scan"
    return twins(Variant(f"moe-{name}", config, train), program, mesh, smoke=smoke)


def _on_one_device(flavour: Flavour, variant: Variant, program: str, mesh: str, **more: Any) -> Case:
    """One device against experts spread over a mesh."""
    name = f"{variant.name}-{'tied' if more else 'single'}-against-mesh"
    sides = (variant, "single"), (variant, mesh)
    return same_flavour(flavour, name, program, *sides, not_applicable=OTHER_PLACES, **more)


def nearly_alike(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a state in which the router tells experts 0, 1, 2 apart, and 3, 4, 5, by the last place only.

    Two are chosen, so a token that likes one of the threes has to leave out one of three equals.

    Args:
        state: flat state with router kernels ``[..., E]``.
    """
    arranged = dict(state)
    for path, kernel in state.items():
        if path.endswith("router/kernel"):
            alike, up = kernel.copy(), np.asarray(np.inf, kernel.dtype)
            for first in (0, 3):
                alike[..., first + 1] = np.nextafter(kernel[..., first], up)
                alike[..., first + 2] = np.nextafter(kernel[..., first], -up)
            arranged[path] = alike
    return arranged


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of the experts.

    Args:
        settings: config fields to override in every variant.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    families = {"mixtral": override(MIXTRAL, settings), "deepseek": override(DEEPSEEK, settings)}
    named = {
        f"{family}-{dispatch}-{layout}": dataclasses.replace(
            _with(config, dispatch=dispatch), layout=LayerLayout(f"{layout}{suffix}")
        )
        for family, config in families.items()
        for dispatch in Dispatch
        for layout, suffix in (("scan", "ned"), ("unroll", "ed"))
    }
    matrix = [_twins(name, config, program) for name, config in named.items() for program in PROGRAMS]
    dropless, dropping = named["mixtral-dropless-scan"], named["deepseek-dropping-scan"]
    matrix += [
        _twins(name, named[name], "train_step", f"{mesh}-{mode}")
        for name in ("mixtral-dropless-scan", "deepseek-dropping-scan")
        for mesh in MESHES
        for mode in Mode
        if f"{mesh}-{mode}" != HOME
    ]
    matrix.append(_twins("deepseek-accumulate", dropping, "train_step", SMALL_BATCH, ACCUMULATING))
    changed = {
        "deepseek-remat": dataclasses.replace(dropping, remat=NAMED, dropout=0.1),
        "mixtral-remat": dataclasses.replace(dropless, remat=REMAT, scan_axis=0),
        "gpt-oss": _with(dropless, **GPT_OSS),
        "mixtral-bf16": dataclasses.replace(dropless, compute_dtype="bfloat16"),
    }
    matrix += [_twins(name, config, "train_step") for name, config in changed.items()]
    return matrix + _measured(dropless, dropping)


def _measured(dropless: ModelConfig, dropping: ModelConfig) -> list[Case]:
    """Returns the cases that no proof settles: other meshes, other dispatch, ties."""
    few = Variant("moe-dropless", dataclasses.replace(dropless, layers=2))
    ample = Variant("moe-ample", _with(few.config, dispatch=Dispatch.DROPPING, capacity_factor=AMPLE))
    sides = (few, "single"), (ample, "single")
    spread = "expert2.tensor2.fsdp2"
    return [
        _on_one_device(Flavour.LINEN, few, "grad", f"{spread}-explicit"),
        _on_one_device(Flavour.NNX, Variant("moe-dropping", dropping), "grad", HOME),
        same_flavour(Flavour.NNX, "moe-dropless-against-ample", "grad", *sides, not_applicable=OTHER_DOTS),
        _on_one_device(Flavour.NNX, few, "forward", f"{spread}-auto", arrange=nearly_alike),
    ]


PAIR = Pair(
    name="moe", about="mixtures of experts: dropless, dropping, balanced, expert-parallel", cases=cases
)
