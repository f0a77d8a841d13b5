"""Small pipelines against their sequence, for the campaign of mutants and the tests."""

from typing import Any

from models_nnx.config import Gather
from models_nnx.presets import preset, tiny
from parity.cases.case import Case
from parity.pairs.pipeline import pipelined, sequential_case
from parity.programs.build import Flavour
from parity.programs.meshes import Mode

__all__ = ["SAMPLES", "sample"]

SAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "forward": ("forward", {"stages": 2, "microbatches": 4, "repeats": 2}),
    "delay": ("forward", {"stages": 2, "microbatches": 8, "repeats": 2, "delay": 2}),
    "grad": ("grad", {"stages": 2, "microbatches": 2}),
    "prefetch": ("grad", {"stages": 2, "microbatches": 2, "repeats": 2, "gather": Gather.PER_REPEAT}),
    "train_step": ("train_step", {"stages": 2, "microbatches": 2}),
}
"""Programs by name: which, and the pipeline."""


def sample(name: str, flavour: Flavour = Flavour.NNX) -> Case:
    """Returns a small pipeline against its sequence.

    Args:
        name: of `SAMPLES`.
        flavour: of both sides.
    """
    program, options = SAMPLES[name]
    return sequential_case(
        "exact", flavour, pipelined(tiny(preset("llama2-70b")), options), Mode.AUTO, program
    )
