"""Small execution plans compared with the plain program, for the mutant campaign and the tests."""

import functools
from collections.abc import Callable
from typing import Any

from campaigns.matrix.plans import accumulated, tiled
from models_nnx.shared.config import Gather, TrainConfig
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.meshes import Mode
from parity.cases.case import Case
from parity.matrix.pipeline import pipelined, sequential_case

__all__ = ["SAMPLES", "sample"]


def _pipeline(program: str, flavour: Flavour, **options: Any) -> Case:
    config = pipelined(tiny(preset("llama2-70b")), options)
    return sequential_case("exact", flavour, config, Mode.AUTO, program)


SAMPLES: dict[str, Callable[[Flavour], Case]] = {
    "forward": functools.partial(_pipeline, "forward", stages=2, microbatches=4, repeats=2),
    "delay": functools.partial(_pipeline, "forward", stages=2, microbatches=8, repeats=2, delay=2),
    "grad": functools.partial(_pipeline, "grad", stages=2, microbatches=2),
    "prefetch": functools.partial(
        _pipeline, "grad", stages=2, microbatches=2, repeats=2, gather=Gather.PER_REPEAT
    ),
    "train_step": functools.partial(_pipeline, "train_step", stages=2, microbatches=2),
    "sums": lambda flavour: accumulated(flavour, tiny(preset("llama2-70b")), 2),
    "loss": lambda flavour: tiled(flavour, tiny(preset("llama2-70b")), TrainConfig(vocab_tiles=2)),
}
"""By name: schedules and buffers, a hand-written VJP, an optimizer step, a split batch, a tiled loss."""


def sample(name: str, flavour: Flavour = Flavour.NNX) -> Case:
    """Returns the case of a small plan and the plain program.

    Args:
        name: of `SAMPLES`.
        flavour: of both sides.
    """
    return SAMPLES[name](flavour)
