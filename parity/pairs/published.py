"""Cases of the decoders at published size, to be lowered only."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from models_nnx.config import RematConfig, RematPolicy, TrainConfig, override
from models_nnx.presets import preset
from parity.build import Flavour
from parity.matrix import Case
from parity.meshes import MeshSpec
from parity.pairs.decoders import decoder_build

__all__ = ["full_size"]

PROGRAMS = ("forward", "grad", "train_step")
TRAINING = {"compute_dtype": "bfloat16", "remat": RematConfig(policy=RematPolicy.FULL)}


def full_size(names: Sequence[str], settings: Mapping[str, str], devices: int) -> list[Case]:
    """Returns published models, scanned, as they are trained: bfloat16 compute, full remat.

    Args:
        names: of presets.
        settings: config fields to override.
        devices: how many; they form ``fsdp x tensor``.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    tensor = 8 if devices >= 64 else min(2, devices)
    mesh = MeshSpec.parse(f"fsdp{devices // tensor}.tensor{tensor}-auto")
    cases = []
    for name in names:
        config = override(dataclasses.replace(preset(name), **TRAINING), settings)
        build = functools.partial(
            decoder_build, name=name, config=config, train=TrainConfig(), shape=(devices // tensor, 4_096)
        )
        cases += [
            Case(
                id=f"{name}/{program}@{mesh}",
                reference=functools.partial(build, Flavour.LINEN),
                candidate=functools.partial(build, Flavour.NNX),
                program=program,
                mesh=mesh,
            )
            for program in PROGRAMS
        ]
    return cases
