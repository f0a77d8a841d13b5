"""All schedules and gathers against the layers in sequence; too long for every day, run by its own command."""

import itertools
from collections.abc import Mapping

from models_nnx.config import Gather, override
from models_nnx.presets import preset, tiny
from parity.cases.case import Case, Pair
from parity.pairs.pipeline import pipelined, sequential_case
from parity.programs.build import Flavour
from parity.programs.meshes import Mode

__all__ = ["PAIR"]


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns stages 2 to 4, S and 2 S microbatches, 1 to 3 repeats, both delays, all gathers, both modes.

    Args:
        settings: config fields to override in every case.

    Raises:
        ConfigError: a setting breaks a rule.
    """
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


PAIR = Pair(
    name="pipeline-grid", about="every schedule and gather against the layers in sequence", cases=cases
)
