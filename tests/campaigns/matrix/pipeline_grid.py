"""All schedules and gathers against the layers in sequence; too slow for the daily run, so a separate command."""

import dataclasses
import itertools
from collections.abc import Mapping

from models_nnx.shared.config import Gather, override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.meshes import Mode
from parity.cases.case import Case, Pair
from parity.matrix.pipeline import pipelined, sequential_case

__all__ = ["PAIR"]


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns stages 2 to 4, S and 2 S microbatches, 1 to 3 repeats, both delays, all gathers, both modes."""
    base = override(tiny(preset("llama2-70b")), settings)
    matrix = []
    for stages, times, repeats, delay, gather, mode in itertools.product(
        (2, 3, 4), (1, 2), (1, 2, 3), (1, 2), Gather, Mode
    ):
        too_late = repeats > 1 and times < delay
        nothing_ahead = gather is Gather.PER_REPEAT and (repeats == 1 or delay == 2)
        if too_late or nothing_ahead:
            continue  # PipelineConfig refuses them
        options = {
            "stages": stages,
            "microbatches": times * stages,
            "repeats": repeats,
            "delay": delay,
            "gather": gather,
        }
        config = pipelined(base, options)
        matrix += [sequential_case("grid", flavour, config, mode) for flavour in Flavour]
    return matrix


PUBLISHED = (
    ("llama2-7b", {"stages": 2, "repeats": 16}),
    ("llama2-7b", {"stages": 4, "repeats": 8}),
    ("llama2-70b", {"stages": 4, "repeats": 16, "layers_outside": 16}),
    ("llama2-70b", {"stages": 4, "repeats": 20}),
)
LENGTH = 4_096


def full_size(settings: Mapping[str, str], devices: int) -> list[Case]:
    """Returns train steps of Llama 2 at published size, with prefetched weights, against the layers in sequence.

    Args:
        settings: config fields to override.
        devices: number of devices; at least twice the number of stages.

    Raises:
        ConfigError: an invalid setting.
    """
    matrix = []
    for name, options in PUBLISHED:
        base = override(dataclasses.replace(preset(name), compute_dtype="bfloat16"), settings)
        config = pipelined(base, {**options, "microbatches": 4, "gather": Gather.PER_REPEAT})
        case = sequential_case(f"grid-{name}", Flavour.NNX, config, Mode.AUTO, "train_step", LENGTH)
        matrix.append(case)
    return matrix


PAIR = Pair(
    name="pipeline-grid",
    about="every schedule and gather against the layers in sequence",
    cases=cases,
    full_size=full_size,
)
