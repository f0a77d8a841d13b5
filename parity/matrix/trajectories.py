"""Training over many steps: ends of the schedule, spoilt batches, saving and loading; and sampling."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from models_nnx.shared.config import (
    LayerLayout,
    ModelConfig,
    MomentSharding,
    OptimizerConfig,
    TrainConfig,
    override,
)
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import SEED, Flavour
from parity.cases.case import Case, Pair
from parity.matrix.cases import ONE_STRUCTURE, OTHER_PLACES, layouts, same_flavour, twins, with_batches
from parity.matrix.decoders import PLAIN, Variant
from parity.matrix.moe import DEEPSEEK

ROWS = (12, 40)
UNEQUAL = TrainConfig(accumulation=3)
ZERO1 = TrainConfig(accumulation=3, moments=MomentSharding.ZERO1)
SHORT = OptimizerConfig(
    warmup_steps=2,
    total_steps=6,
    final_learning_rate=0.004,
    spike_window=3,
    spike_factor=3.0,
    max_bad_steps=2,
)
WATCHFUL = TrainConfig(optimizer=SHORT)

LOSSES = (5.9, 6.1, 6.0)
"""Losses in the optimizer's window at the start of a case: a loss above 6.25 is a spike."""

SPIKE = 242
"""The token that the random state of these cases finds least likely; a test checks that a batch of it spikes."""

Batch = Mapping[str, np.ndarray]


def without_weight(batch: Batch) -> dict[str, np.ndarray]:
    """Returns a batch of padding only: 0 / 0 makes its loss and every gradient NaN."""
    return {**batch, "weights": np.zeros_like(batch["weights"])}


def unlikely(batch: Batch) -> dict[str, np.ndarray]:
    """Returns a batch whose loss spikes."""
    return {**batch, "targets": np.full_like(batch["targets"], SPIKE)}


def _at(step: int) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Returns a function that sets step counters and loss history as after ``step`` updates."""
    ends = {
        "step": np.uint32(step),
        "/1/0/count": np.int32(step),
        "/1/2/count": np.int32(step),
        "/seen": np.int32(len(LOSSES)),
        "/losses_W": np.asarray(LOSSES, np.float32),
    }

    def prepare(state: Mapping[str, Any]) -> dict[str, Any]:
        def value(path: str) -> Any:
            return next((np.array(value) for end, value in ends.items() if path.endswith(end)), state[path])

        return {path: value(path) for path in state}

    return prepare


def _watchful(name: str, config: ModelConfig, step: int, spoilt: Mapping[int, Any]) -> Case:
    """Returns twins that start late and receive spoilt batches at steps counted from 1; one layout is also saved."""
    globs = [f"step{number}/*" for number, spoil in spoilt.items() if spoil is without_weight]
    variant = Variant(f"training-{name}", config, WATCHFUL, ROWS, saved=config.layout is LayerLayout.UNROLLED)
    accept = dataclasses.replace(ONE_STRUCTURE, not_finite=globs)
    case = twins(variant, "train_step", "single", accept, prepare_state=_at(step))
    spoiled = with_batches(case, lambda seed, batch: spoilt.get(seed - SEED + 1, dict)(batch))
    return dataclasses.replace(spoiled, float64_reference=None)


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns the matrix of training over many steps."""
    base = override(dataclasses.replace(tiny(preset("llama2-70b")), layers=2, dropout=0.1), settings)
    experts = override(dataclasses.replace(DEEPSEEK, dropout=0.1), settings)
    cycles = override(tiny(preset("gemma2-9b")), settings)
    unrolled = dataclasses.replace(base, layout=LayerLayout.UNROLLED)
    narrow = dataclasses.replace(unrolled, param_dtype="bfloat16")
    plain = Variant("training-plain", base, shape=ROWS)
    saved = dataclasses.replace(plain, saved=True)
    trajectory = layouts(Flavour.NNX, "training", "trajectory", dataclasses.replace(base, dropout=0.0))
    return [
        *(
            twins(Variant(f"training-{name}", config, train, ROWS, saved=True), "train_step", mesh)
            for name, config, train, mesh in (
                ("scan", base, UNEQUAL, "fsdp2.tensor2-explicit"),
                ("unroll-bf16", narrow, UNEQUAL, "single"),
                ("zero1", base, ZERO1, "data2.fsdp2-auto"),
                ("experts", experts, PLAIN, "data2.expert2-auto"),
            )
        ),
        _watchful("across-warmup", base, 1, {2: unlikely, 5: without_weight}),
        _watchful("past-the-end", unrolled, 5, {2: unlikely, 3: without_weight}),
        same_flavour(
            Flavour.LINEN,
            "training-plain-against-mesh",
            "train_step",
            (saved, "single"),
            (saved, "fsdp2.tensor2-explicit"),
            accept=OTHER_PLACES,
        ),
        twins(plain, "trajectory", "fsdp4.tensor2-auto"),
        trajectory,
        *(
            twins(Variant(f"training-{name}", config), "sample", "fsdp4.tensor2-auto")
            for name, config in (("scan-dense", base), ("unroll-dense", unrolled), ("cycles", cycles))
        ),
    ]


PAIR = Pair(
    name="training", about="steps: ends of the schedule, spoilt batches, checkpoints, sampling", cases=cases
)
